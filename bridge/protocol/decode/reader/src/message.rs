//! RECORD lines to rows. A line that is not plainly a RECORD of these columns is odd, and leaves no trace.

use crate::column::{Column, Fields, Values};
use crate::scan::{Cursor, Odd, Read};

/// An odd line: its number, counted from 0, and where it starts and ends, without its line end.
pub type OddLine = [u32; 3];

/// What lines became: rows + odd lines = lines.
pub struct Rows {
    pub rows: usize,
    pub lines: usize,
    pub record: Fields,
    /// Members of the record that have no column, as an object.
    pub others: Column,
    pub version: Column,
    pub extracted: Column,
    pub odd: Vec<OddLine>,
}

impl Rows {
    pub fn new(record: Fields) -> Self {
        Self {
            rows: 0,
            lines: 0,
            record,
            others: Column::new(false, Values::Raw(Default::default())),
            version: Column::new(false, Values::Integers(Vec::new())),
            extracted: Column::new(false, Values::Moments(Vec::new())),
            odd: Vec::new(),
        }
    }

    /// Read all lines. Each begins with `prefix`, up to and including `"record":`; an empty one says nothing.
    pub fn read(&mut self, data: &[u8], prefix: &[u8]) {
        let mut cursor = Cursor::new(data);
        while cursor.at < data.len() {
            let start = cursor.at;
            if self.line(&mut cursor, prefix).is_ok() {
                self.rows += 1;
            } else {
                let end = cursor.line_end(start);
                self.odd.push([self.lines as u32, start as u32, end as u32]);
                self.cut();
                cursor.at = end;
            }
            cursor.at += 1;
            self.lines += 1;
        }
    }

    fn cut(&mut self) {
        self.record.cut(self.rows);
        for column in [&mut self.others, &mut self.version, &mut self.extracted] {
            column.cut(self.rows);
        }
    }

    fn line(&mut self, cursor: &mut Cursor, prefix: &[u8]) -> Read<()> {
        members(cursor, prefix, |cursor, name| match name {
            b"record" => self.record.read(cursor, self.rows, Some(&mut self.others)),
            b"version" => once(&mut self.version, self.rows)?.read_whole(cursor),
            b"time_extracted" => once(&mut self.extracted, self.rows)?.read_if_any(cursor),
            _ => cursor.value().map(|_| ()),
        })?;
        for column in [&mut self.version, &mut self.extracted] {
            if column.rows == self.rows {
                column.push_null()?;
            }
        }
        // This one is what Python takes for no version.
        match &self.version.values {
            Values::Integers(versions) if versions[self.rows] == i64::MIN => Err(Odd),
            _ => Ok(()),
        }
    }
}

/// Read one line, a RECORD: `member` reads each value but the type's. One that begins with `prefix` names no stream again.
#[inline(always)]
pub fn members<'a>(
    cursor: &mut Cursor<'a>,
    prefix: &[u8],
    mut member: impl FnMut(&mut Cursor<'a>, &'a [u8]) -> Read<()>,
) -> Read<()> {
    let known = !prefix.is_empty();
    let (mut kind, mut record, mut more) = (known, known, true);
    if known {
        cursor.literal(prefix)?;
        cursor.space();
        member(cursor, b"record")?;
        more = cursor.more(b'}')?;
    } else {
        cursor.space();
        cursor.expect(b'{')?;
        cursor.space();
    }
    while more {
        match cursor.name()? {
            b"type" if !kind => {
                kind = true;
                cursor.literal(b"\"RECORD\"")?;
            }
            b"type" => return Err(Odd),
            b"record" if record => return Err(Odd),
            b"stream" if known => return Err(Odd),
            name => {
                record |= name == b"record";
                member(cursor, name)?;
            }
        }
        more = cursor.more(b'}')?;
    }
    cursor.space();
    if kind && record && cursor.peek() == b'\n' {
        Ok(())
    } else {
        Err(Odd)
    }
}

fn once(column: &mut Column, rows: usize) -> Read<&mut Column> {
    if column.rows == rows {
        Ok(column)
    } else {
        Err(Odd)
    }
}

/// A column of a kind: the first byte of what describes it in `lib.rs`.
pub fn values_of(kind: u8, precision: u32, scale: u32) -> Option<Values> {
    Some(match kind {
        b'i' => Values::Integers(Vec::new()),
        b'f' => Values::Doubles(Vec::new()),
        b'b' => Values::Booleans(Vec::new()),
        b's' => Values::Texts(Default::default()),
        b'r' => Values::Raw(Default::default()),
        b't' => Values::Moments(Vec::new()),
        b'd' => Values::Days(Vec::new()),
        b'n' => Values::Nulls,
        b'x' => Values::Skipped,
        b'm' if precision <= 38 && scale <= precision => Values::Decimals {
            precision,
            scale,
            values: Vec::new(),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_lines_leave_no_trace() {
        let fields = vec![(
            b"a".to_vec(),
            Column::new(false, values_of(b's', 0, 0).unwrap()),
        )];
        let mut rows = Rows::new(Fields::new(fields));
        rows.read(b"{\"type\":\"RECORD\",\"record\":{\"a\":\"x\"}}\n{\"type\":\"RECORD\",\"record\":{\"a\":\"y\"}\n", b"");
        assert_eq!((rows.rows, rows.lines, rows.odd.len()), (1, 2, 1));
        assert!(
            matches!(&rows.record.columns[0].values, Values::Texts(texts) if texts.bytes == b"x")
        );
    }
}
