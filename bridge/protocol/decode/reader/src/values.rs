//! Texts of numbers and times to values, without loss; `None` where another reader has to judge.

use std::fmt::{Error, Result, Write};

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

/// The nearest double, and whether it gives the number back.
#[inline]
pub fn double(text: &[u8], whole: bool) -> Option<(f64, bool)> {
    if whole {
        let value = integer(text)?; // 64 bits to a double rounds to the nearest, as Python does
        let double = value as f64;
        let small = value.unsigned_abs() <= 1 << 53;
        return Some((double, small || gives_back(text, double)));
    }
    let (negative, digits) = signed(text);
    if digits.len() <= 17 && !digits.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        let point = digits.iter().position(|byte| *byte == b'.')?;
        let all = digits.iter().filter(|byte| **byte != b'.');
        let mantissa = all.fold(0u64, |value, digit| value * 10 + (digit - b'0') as u64);
        if mantissa < 1 << 53 {
            let value = mantissa as f64 / TENS[digits.len() - point - 1]; // both exact, so rounded once
            let value = if negative { -value } else { value };
            return Some((value, digits.len() <= 16 || gives_back(text, value)));
        }
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then(|| (value, gives_back(text, value)))
}

/// Whether a double as it is printed is the number of a text; or, of a whole number, as it is.
fn gives_back(text: &[u8], value: f64) -> bool {
    let mut rest = Same(text);
    if write!(rest, "{}", value).is_ok() && rest.0.is_empty() {
        return true;
    }
    let (digits, exponent) = significant(text);
    let printed = significant(format!("{:e}", value).as_bytes());
    if printed.0 == digits && printed.1 == exponent {
        return true;
    }
    if exponent < 0 || digits.len() as i64 + exponent > 38 {
        return false;
    }
    let number = digits
        .iter()
        .fold(0i128, |number, digit| number * 10 + (digit - b'0') as i128);
    number * 10i128.pow(exponent as u32) == value.abs() as i128
}

/// What is left of a text that is compared with what is printed.
struct Same<'a>(&'a [u8]);

impl Write for Same<'_> {
    fn write_str(&mut self, printed: &str) -> Result {
        self.0 = self.0.strip_prefix(printed.as_bytes()).ok_or(Error)?;
        Ok(())
    }
}

/// A number's digits without zeros around them, and the power of ten of the last one; 0 has none.
fn significant(text: &[u8]) -> (Vec<u8>, i64) {
    let (_, text) = signed(text);
    let end = text
        .iter()
        .position(|byte| matches!(byte, b'e' | b'E'))
        .unwrap_or(text.len());
    let written = text.get(end + 1..).and_then(|text| {
        let text = std::str::from_utf8(text).ok()?;
        text.parse::<i64>().ok()
    });
    let mut exponent = written.unwrap_or(0);
    let mut digits = Vec::with_capacity(end);
    let mut after_point = false;
    for byte in &text[..end] {
        if *byte == b'.' {
            after_point = true;
            continue;
        }
        exponent -= after_point as i64;
        if *byte != b'0' || !digits.is_empty() {
            digits.push(*byte);
        }
    }
    while digits.last() == Some(&b'0') {
        digits.pop();
        exponent += 1;
    }
    if digits.is_empty() {
        exponent = 0;
    }
    (digits, exponent)
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
    /// A digit beyond microseconds is not 0.
    cut: bool,
}

impl Written {
    fn instant(&self) -> Option<i64> {
        let result = self.day * DAY + (self.seconds - self.offset) * 1_000_000 + self.micros;
        (FIRST..=LAST).contains(&result).then_some(result)
    }
}

/// Microseconds since 1970 in UTC, and whether a digit beyond was cut off. Without an offset it is UTC.
#[inline]
pub fn moment(text: &[u8]) -> Option<(i64, bool)> {
    let written = written(text)?;
    Some((written.instant()?, written.cut))
}

/// Days since 1970, of a date or of a midnight as it is written.
#[inline]
pub fn day(text: &[u8]) -> Option<i32> {
    let written = written(text)?;
    written.instant()?;
    (written.seconds == 0 && !written.fraction).then_some(written.day as i32)
}

/// `2024-02-29`, `T12`, `:30`, `:59`, `.123` or `,123`, and an offset; each needs the one before.
#[inline]
fn written(text: &[u8]) -> Option<Written> {
    let mut result = Written {
        day: date(text.get(..10)?)?,
        seconds: 0,
        micros: 0,
        offset: 0,
        fraction: false,
        cut: false,
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
        if unit == 1 && matches!(rest.first(), Some(b'.' | b',')) {
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
            result.cut = digits > 6 && rest[7..=digits].iter().any(|digit| *digit != b'0');
            rest = &rest[1 + digits..];
        }
    }
    result.offset = offset(rest)?;
    Some(result)
}

/// `Z`, `UTC`, `+01`, `+0100`, `+01:00`, `+010000` or `+01:00:00`, after a blank or none.
#[inline]
fn offset(text: &[u8]) -> Option<i64> {
    if matches!(text, b"" | b"Z" | b"z") {
        return Some(0);
    }
    let text = text.strip_prefix(b" ").unwrap_or(text);
    let sign = match text.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return matches!(text, b"Z" | b"z" | b"UTC").then_some(0),
    };
    let hours = pair(text.get(1..3)?, 23)?;
    let (minutes, seconds) = match text[3..] {
        [] => (0, 0),
        [b':', a, b] | [a, b] => (pair(&[a, b], 59)?, 0),
        [b':', a, b, b':', c, d] | [a, b, c, d] => (pair(&[a, b], 59)?, pair(&[c, d], 59)?),
        _ => return None,
    };
    Some(sign * (hours * 3600 + minutes * 60 + seconds))
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

#[cfg(test)]
mod tests {
    use super::double;

    #[test]
    fn digits_that_a_double_loses() {
        let lost = |text: &str| {
            let whole = text
                .trim_start_matches('-')
                .bytes()
                .all(|byte| byte.is_ascii_digit());
            !double(text.as_bytes(), whole).unwrap().1
        };
        for text in [
            "9007199254740993",
            "-0.10000000000000001",
            "1e-400",
            "0.1234567890123456789",
        ] {
            assert!(lost(text), "{}", text);
        }
        for text in [
            "9007199254740992",
            "0.1",
            "-1.50",
            "0.30000000000000004",
            "1.0000000000000000000",
            "-0.0",
            "1E+2",
            "5e-324",
            "9007199254740994",
            "1234567890123456768.0",
            "1234567890123456800",
            "1e22",
            "0.00000000000000000001",
        ] {
            assert!(!lost(text), "{}", text);
        }
    }
}
