//! Values of scalar columns: those of their type, and the other ways to write one that taps use most.
//!
//! What else `bridge/protocol/decode/coerce.py` takes is odd.

use crate::scan::{Cursor, Number, Odd, Read};
use crate::values;

impl<'a> Cursor<'a> {
    /// A whole number: also `1.0`, and `"1"`.
    #[inline]
    pub fn integer(&mut self) -> Read<i64> {
        if self.peek() == b'"' {
            let number = self.quoted_number()?;
            return if number.whole {
                values::integer(number.text).ok_or(Odd)
            } else {
                Err(Odd)
            };
        }
        let number = self.number()?;
        let text = if number.whole {
            number.text
        } else {
            without_fraction(number.text)?
        };
        values::integer(text).ok_or(Odd)
    }

    /// A number, and whether a double gives it back: also `"1.5"`, and what JSON lacks.
    #[inline]
    pub fn double(&mut self) -> Read<(f64, bool)> {
        match self.peek() {
            b'"' => {
                let number = self.quoted_number()?;
                values::double(number.text, number.whole).ok_or(Odd)
            }
            b'N' => self.literal(b"NaN").map(|()| (f64::NAN, true)),
            b'I' => self.literal(b"Infinity").map(|()| (f64::INFINITY, true)),
            _ if self.take(b"-Infinity") => Ok((f64::NEG_INFINITY, true)),
            _ => {
                let number = self.number()?;
                values::double(number.text, number.whole).ok_or(Odd)
            }
        }
    }

    /// True or false: also 1, 0, and in quotes.
    #[inline]
    pub fn boolean(&mut self) -> Read<bool> {
        match self.peek() {
            b't' => self.literal(b"true").map(|()| true),
            b'f' => self.literal(b"false").map(|()| false),
            b'"' => match self.short()? {
                b"true" => Ok(true),
                b"false" => Ok(false),
                _ => Err(Odd),
            },
            _ => match self.number()?.text {
                b"1" => Ok(true),
                b"0" => Ok(false),
                _ => Err(Odd),
            },
        }
    }

    /// A text, or the text of a whole number, true or false.
    #[inline]
    pub fn text(&mut self, out: &mut Vec<u8>) -> Read<()> {
        match self.peek() {
            b'"' => return self.string(out),
            b't' | b'f' => out.extend_from_slice(if self.boolean()? { b"true" } else { b"false" }),
            _ => {
                let number = self.number()?;
                if !number.whole || values::integer(number.text).is_none() {
                    return Err(Odd);
                }
                out.extend_from_slice(number.text);
            }
        }
        Ok(())
    }

    /// A text that is a number by JSON's grammar.
    fn quoted_number(&mut self) -> Read<Number<'a>> {
        let text = self.short()?;
        let mut inside = Cursor::new(text);
        let number = inside.number()?;
        if inside.at == text.len() {
            Ok(number)
        } else {
            Err(Odd)
        }
    }
}

/// The digits before a point after which all are 0.
fn without_fraction(text: &[u8]) -> Read<&[u8]> {
    let point = text.iter().position(|byte| *byte == b'.').ok_or(Odd)?;
    if text[point + 1..].iter().all(|byte| *byte == b'0') {
        Ok(&text[..point])
    } else {
        Err(Odd)
    }
}
