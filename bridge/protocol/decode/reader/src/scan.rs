//! The bytes of one line, token by token, as RFC 8259 has them. Whatever is not plain is `Odd`: another reader judges it.

/// This reader does not know what the line means.
pub struct Odd;

pub type Read<T> = Result<T, Odd>;

/// Deeper values are odd, so that no line overflows the stack.
pub const DEEPEST: u32 = 96;
/// Longer numbers are odd.
const LONGEST_NUMBER: usize = 64;

/// A place in lines of text. A line end is never skipped, so no value goes on in the next line.
pub struct Cursor<'a> {
    pub data: &'a [u8],
    pub at: usize,
    scratch: Vec<u8>,
}

/// A number's bytes, and whether it has neither point nor exponent.
pub struct Number<'a> {
    pub text: &'a [u8],
    pub whole: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self {
            data,
            at: 0,
            scratch: Vec::new(),
        }
    }

    /// Where the line ends that has the byte at `start`.
    pub fn line_end(&self, start: usize) -> usize {
        self.data[start..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(self.data.len(), |at| start + at)
    }

    /// The next byte; a line end at the end.
    #[inline(always)]
    pub fn peek(&self) -> u8 {
        self.byte(self.at)
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.data.get(at).copied().unwrap_or(b'\n')
    }

    #[inline(always)]
    pub fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r') {
            self.at += 1;
        }
    }

    #[inline(always)]
    pub fn expect(&mut self, byte: u8) -> Read<()> {
        if self.peek() != byte {
            return Err(Odd);
        }
        self.at += 1;
        Ok(())
    }

    /// Take these bytes, if they come next.
    #[inline(always)]
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let found = self.data[self.at.min(self.data.len())..].starts_with(bytes);
        self.at += if found { bytes.len() } else { 0 };
        found
    }

    pub fn literal(&mut self, text: &[u8]) -> Read<()> {
        if self.take(text) {
            Ok(())
        } else {
            Err(Odd)
        }
    }

    /// What follows a member or an item: true for a comma, false for the end.
    #[inline(always)]
    pub fn more(&mut self, end: u8) -> Read<bool> {
        self.space();
        let byte = self.peek();
        self.at += 1;
        match byte {
            b',' => {
                self.space();
                Ok(true)
            }
            _ if byte == end => Ok(false),
            _ => Err(Odd),
        }
    }

    /// A member's name as it is written, without quotes, and the colon. Names with escapes are odd.
    pub fn name(&mut self) -> Read<&'a [u8]> {
        let start = self.at + 1;
        self.skip_string()?;
        let name = &self.data[start..self.at - 1];
        if name.contains(&b'\\') {
            return Err(Odd);
        }
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(name)
    }

    /// Append a string's text.
    #[inline]
    pub fn string(&mut self, out: &mut Vec<u8>) -> Read<()> {
        self.expect(b'"')?;
        let end = self.plain_end(self.at);
        if self.byte(end) == b'"' {
            out.extend_from_slice(&self.data[self.at..end]);
            self.at = end + 1;
            return Ok(());
        }
        self.long_string(out, end)
    }

    /// A string of ASCII without escapes, where it stands.
    #[inline]
    pub fn short(&mut self) -> Read<&'a [u8]> {
        self.expect(b'"')?;
        let (start, end) = (self.at, self.plain_end(self.at));
        self.at = end + 1;
        if self.byte(end) == b'"' {
            Ok(&self.data[start..end])
        } else {
            Err(Odd)
        }
    }

    /// A string with escapes or characters beyond ASCII.
    fn long_string(&mut self, out: &mut Vec<u8>, mut end: usize) -> Read<()> {
        let (begun, mut ascii) = (out.len(), true);
        loop {
            out.extend_from_slice(&self.data[self.at..end]);
            self.at = end;
            match self.peek() {
                b'"' => break,
                b'\\' => self.escape(out)?,
                0x80.. => {
                    ascii = false;
                    while self.peek() >= 0x80 {
                        self.at += 1;
                    }
                    out.extend_from_slice(&self.data[end..self.at]);
                }
                _ => return Err(Odd),
            }
            end = self.plain_end(self.at);
        }
        self.at += 1;
        if ascii || std::str::from_utf8(&out[begun..]).is_ok() {
            Ok(())
        } else {
            Err(Odd)
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Read<()> {
        self.at += 2;
        let byte = match self.byte(self.at - 1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode(out),
            _ => return Err(Odd),
        };
        out.push(byte);
        Ok(())
    }

    fn unicode(&mut self, out: &mut Vec<u8>) -> Read<()> {
        let mut code = self.hex()?;
        if (0xd800..0xdc00).contains(&code) {
            self.literal(b"\\u")?;
            let low = self.hex()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(Odd);
            }
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        let character = char::from_u32(code).ok_or(Odd)?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn hex(&mut self) -> Read<u32> {
        let mut code = 0;
        for _ in 0..4 {
            code = code * 16 + (self.peek() as char).to_digit(16).ok_or(Odd)?;
            self.at += 1;
        }
        Ok(code)
    }

    /// Where the next quote, backslash, control character or byte beyond ASCII is.
    #[inline(always)]
    fn plain_end(&self, mut at: usize) -> usize {
        const ONES: u64 = u64::MAX / 255;
        while let Some(bytes) = self.data.get(at..at + 8) {
            let word = u64::from_le_bytes(bytes.try_into().unwrap());
            let (quote, back) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
            let zero = (quote.wrapping_sub(ONES) & !quote) | (back.wrapping_sub(ONES) & !back);
            let hits = (zero | (word.wrapping_sub(ONES * 0x20) & !word) | word) & (ONES * 0x80);
            if hits != 0 {
                return at + (hits.trailing_zeros() / 8) as usize;
            }
            at += 8;
        }
        while at < self.data.len()
            && matches!(self.data[at], 0x20 | 0x21 | 0x23..=0x5b | 0x5d..=0x7f)
        {
            at += 1;
        }
        at
    }

    /// A number by JSON's grammar.
    #[inline]
    pub fn number(&mut self) -> Read<Number<'a>> {
        let (start, mut whole) = (self.at, true);
        if self.peek() == b'-' {
            self.at += 1;
        }
        if self.peek() == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == b'.' {
            whole = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            whole = false;
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.data[start..self.at];
        if text.len() > LONGEST_NUMBER {
            Err(Odd)
        } else {
            Ok(Number { text, whole })
        }
    }

    #[inline(always)]
    fn digits(&mut self) -> Read<()> {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        if self.at > start {
            Ok(())
        } else {
            Err(Odd)
        }
    }

    /// Pass over a string, which has to be one that `string` reads.
    #[inline]
    fn skip_string(&mut self) -> Read<()> {
        self.expect(b'"')?;
        loop {
            self.at = self.plain_end(self.at);
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.skip_escape()?,
                0x80.. => {
                    let start = self.at;
                    while self.peek() >= 0x80 {
                        self.at += 1;
                    }
                    std::str::from_utf8(&self.data[start..self.at]).map_err(|_| Odd)?;
                }
                _ => return Err(Odd),
            }
        }
    }

    fn skip_escape(&mut self) -> Read<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let read = self.escape(&mut scratch);
        self.scratch = scratch;
        read
    }

    /// A value of any kind, as it is written.
    pub fn value(&mut self) -> Read<&'a [u8]> {
        let start = self.at;
        self.skip(0)?;
        Ok(&self.data[start..self.at])
    }

    fn skip(&mut self, depth: u32) -> Read<()> {
        if depth > DEEPEST {
            return Err(Odd);
        }
        match self.peek() {
            b'"' => self.skip_string(),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            b'[' => self.skip_all(b']', depth),
            b'{' => self.skip_all(b'}', depth),
            _ => self.number().map(|_| ()),
        }
    }

    fn skip_all(&mut self, end: u8, depth: u32) -> Read<()> {
        self.at += 1;
        self.space();
        if self.peek() == end {
            self.at += 1;
            return Ok(());
        }
        loop {
            if end == b'}' {
                self.skip_string()?;
                self.space();
                self.expect(b':')?;
                self.space();
            }
            self.skip(depth + 1)?;
            if !self.more(end)? {
                return Ok(());
            }
        }
    }
}
