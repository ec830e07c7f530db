//! Texts of numbers and times to values, without loss; `None` where another reader has to judge.

const DAY: i64 = 86_400_000_000;
/// Microseconds since 1970 of the first instant of the year 1, and of the last one of the year 9999.
const FIRST: i64 = -62_135_596_800_000_000;
const LAST: i64 = 253_402_300_799_999_999;
/// Powers of ten that a double holds exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// A whole number within 64 bits. `-0` is none.
#[inline]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = signed(text);
    if digits.len() > 18 || (negative && digits == b"0") {
        let value = std::str::from_utf8(text).ok()?.parse().ok()?;
        return if value == 0 { None } else { Some(value) };
    }
    let value = digits
        .iter()
        .fold(0, |value, digit| value * 10 + (digit - b'0') as i64);
    Some(if negative { -value } else { value })
}

/// The nearest double.
#[inline]
pub fn double(text: &[u8], whole: bool) -> Option<f64> {
    if whole {
        let value = integer(text)?; // 64 bits to a double rounds to the nearest, as Python does
        return Some(value as f64);
    }
    let (negative, digits) = signed(text);
    if digits.len() <= 17 && !digits.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        let point = digits.iter().position(|byte| *byte == b'.')?;
        let all = digits.iter().filter(|byte| **byte != b'.');
        let mantissa = all.fold(0u64, |value, digit| value * 10 + (digit - b'0') as u64);
        if mantissa < 1 << 53 {
            let value = mantissa as f64 / TENS[digits.len() - point - 1]; // both exact, so rounded once
            return Some(if negative { -value } else { value });
        }
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// A decimal's digits as a whole number, of `12`, `-1.50` and the like; none where digits would be lost.
pub fn decimal(text: &[u8], precision: u32, scale: u32) -> Option<i128> {
    let (negative, digits) = signed(text);
    let point = digits
        .iter()
        .position(|byte| *byte == b'.')
        .unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or(b""));
    let zeros = fraction
        .iter()
        .rev()
        .take_while(|digit| **digit == b'0')
        .count();
    let kept = &fraction[..fraction.len() - zeros];
    let shaped = whole.iter().chain(fraction).all(u8::is_ascii_digit) && !whole.is_empty();
    if !shaped
        || (point < digits.len() && fraction.is_empty())
        || whole.len() > 38
        || kept.len() > scale as usize
    {
        return None;
    }
    let all = whole.iter().chain(kept).try_fold(0i128, |value, digit| {
        value.checked_mul(10)?.checked_add((digit - b'0') as i128)
    });
    let value = all?.checked_mul(10i128.checked_pow(scale - kept.len() as u32)?)?;
    if value >= 10i128.checked_pow(precision)? {
        return None;
    }
    Some(if negative { -value } else { value })
}

#[inline(always)]
fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    }
}

/// What a text says of a day and a time of it.
struct Written {
    day: i64,
    seconds: i64,
    micros: i64,
    offset: i64,
    /// A digit beyond microseconds, too, is not 0.
    fraction: bool,
}

impl Written {
    fn instant(&self) -> Option<i64> {
        let result = self.day * DAY + (self.seconds - self.offset) * 1_000_000 + self.micros;
        (FIRST..=LAST).contains(&result).then_some(result)
    }
}

/// Microseconds since 1970 in UTC. Digits beyond are cut off; without an offset it is UTC.
#[inline]
pub fn moment(text: &[u8]) -> Option<i64> {
    written(text)?.instant()
}

/// Days since 1970, of a date or of a midnight as it is written.
#[inline]
pub fn day(text: &[u8]) -> Option<i32> {
    let written = written(text)?;
    written.instant()?;
    (written.seconds == 0 && !written.fraction).then_some(written.day as i32)
}

/// `2024-02-29`, `T12`, `:30`, `:59`, `.123`, and `Z`, `+01`, `+0100` or `+01:00`; each needs the one before.
#[inline]
fn written(text: &[u8]) -> Option<Written> {
    let mut result = Written {
        day: date(text.get(..10)?)?,
        seconds: 0,
        micros: 0,
        offset: 0,
        fraction: false,
    };
    let mut rest = &text[10..];
    if rest.is_empty() {
        return Some(result);
    }
    if !matches!(rest[0], b'T' | b't' | b' ') {
        return None;
    }
    result.seconds = pair(rest.get(1..3)?, 23)? * 3600;
    rest = &rest[3..];
    for unit in [60, 1] {
        if rest.first() != Some(&b':') {
            break;
        }
        result.seconds += pair(rest.get(1..3)?, 59)? * unit;
        rest = &rest[3..];
        if unit == 1 && rest.first() == Some(&b'.') {
            let digits = rest[1..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            if digits == 0 {
                return None;
            }
            for place in 0..6 {
                let digit = if place < digits {
                    rest[1 + place] - b'0'
                } else {
                    0
                };
                result.micros = result.micros * 10 + digit as i64;
            }
            result.fraction = rest[1..=digits].iter().any(|digit| *digit != b'0');
            rest = &rest[1 + digits..];
        }
    }
    result.offset = offset(rest)?;
    Some(result)
}

#[inline]
fn offset(text: &[u8]) -> Option<i64> {
    if matches!(text, b"" | b"Z" | b"z") {
        return Some(0);
    }
    let sign = match text[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = pair(text.get(1..3)?, 23)?;
    let minutes = match &text[3..] {
        b"" => 0,
        [b':', minutes @ ..] | minutes => pair(minutes, 59)?,
    };
    Some(sign * (hours * 3600 + minutes * 60))
}

#[inline(always)]
fn pair(text: &[u8], most: i64) -> Option<i64> {
    let (tens, ones) = match text {
        [tens, ones] => (tens, ones),
        _ => return None,
    };
    if !tens.is_ascii_digit() || !ones.is_ascii_digit() {
        return None;
    }
    let value = ((tens - b'0') * 10 + (ones - b'0')) as i64;
    (value <= most).then_some(value)
}

/// Days since 1970 of a date of the years 1 to 9999.
#[inline]
fn date(text: &[u8]) -> Option<i64> {
    if text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let year = pair(&text[..2], 99)? * 100 + pair(&text[2..4], 99)?;
    let (month, day) = (pair(&text[5..7], 12)?, pair(&text[8..], 31)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + leap as i64,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year == 0 || month == 0 || day == 0 || day > longest {
        return None;
    }
    // Years that begin in March end with the leap day.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(days + (153 * month + 2) / 5 + day - 1 - 719_468)
}
