//! Columns that grow row by row, and shrink to where they were when a line turns out to be odd.

use std::collections::HashMap;

use crate::scan::{Cursor, Odd, Read};
use crate::values;

/// Texts, or anything as it is written.
#[derive(Default)]
pub struct Texts {
    pub ends: Vec<i32>,
    pub bytes: Vec<u8>,
}

impl Texts {
    fn end(&mut self) {
        self.ends.push(self.bytes.len() as i32);
    }

    fn cut(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.bytes.truncate(last(&self.ends));
    }
}

/// Where the last of these ends.
fn last(ends: &[i32]) -> usize {
    ends.last().map_or(0, |end| *end as usize)
}

pub enum Values {
    Integers(Vec<i64>),
    Doubles(Vec<f64>),
    Booleans(Vec<u8>),
    Texts(Texts),
    Raw(Texts),
    Moments(Vec<i64>),
    Days(Vec<i32>),
    Decimals {
        precision: u32,
        scale: u32,
        values: Vec<i128>,
    },
    /// Only null.
    Nulls,
    /// Anything, not kept.
    Skipped,
    Object(Fields),
    List {
        ends: Vec<i32>,
        items: Box<Column>,
    },
}

pub struct Column {
    pub required: bool,
    pub rows: usize,
    /// The rows that are null.
    pub nulls: Vec<u32>,
    /// The rows whose value is not quite what the line says: a double that lost digits, an instant that was cut.
    pub changed: Vec<u32>,
    pub values: Values,
}

impl Column {
    pub fn new(required: bool, values: Values) -> Self {
        Self {
            required,
            rows: 0,
            nulls: Vec::new(),
            changed: Vec::new(),
            values,
        }
    }

    /// Add the value that comes next.
    #[inline]
    pub fn read(&mut self, cursor: &mut Cursor) -> Read<()> {
        if cursor.peek() == b'n' && !matches!(self.values, Values::Skipped) {
            cursor.literal(b"null")?;
            return self.push_null();
        }
        match &mut self.values {
            Values::Integers(values) => values.push(cursor.integer()?),
            Values::Doubles(values) => {
                let (value, exact) = cursor.double()?;
                values.push(value);
                if !exact {
                    self.changed.push(self.rows as u32);
                }
            }
            Values::Booleans(values) => values.push(cursor.boolean()? as u8),
            Values::Texts(texts) => {
                cursor.text(&mut texts.bytes)?;
                texts.end();
            }
            Values::Raw(texts) => {
                texts.bytes.extend_from_slice(cursor.value()?);
                texts.end();
            }
            Values::Moments(values) => {
                let (moment, cut) = values::moment(cursor.short()?).ok_or(Odd)?;
                values.push(moment);
                if cut {
                    self.changed.push(self.rows as u32);
                }
            }
            Values::Days(values) => values.push(values::day(cursor.short()?).ok_or(Odd)?),
            Values::Decimals {
                precision,
                scale,
                values,
            } => {
                let text = if cursor.peek() == b'"' {
                    cursor.short()?
                } else {
                    cursor.number()?.text
                };
                values.push(values::decimal(text, *precision, *scale).ok_or(Odd)?);
            }
            Values::Nulls => return Err(Odd),
            Values::Skipped => {
                cursor.value()?;
            }
            Values::Object(fields) => fields.read(cursor, self.rows, None)?,
            Values::List { ends, items } => {
                cursor.expect(b'[')?;
                cursor.space();
                let mut more = !cursor.take(b"]");
                while more {
                    items.read(cursor)?;
                    more = cursor.more(b']')?;
                }
                ends.push(items.rows as i32);
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Add the whole number that comes next, in the one way to write it.
    pub fn read_whole(&mut self, cursor: &mut Cursor) -> Read<()> {
        let values = match &mut self.values {
            Values::Integers(values) if cursor.peek() != b'n' => values,
            _ => return self.read(cursor),
        };
        let number = cursor.number()?;
        if !number.whole {
            return Err(Odd);
        }
        values.push(values::integer(number.text).ok_or(Odd)?);
        self.rows += 1;
        Ok(())
    }

    /// Add the instant that comes next; null for a text that is none.
    pub fn read_if_any(&mut self, cursor: &mut Cursor) -> Read<()> {
        let values = match &mut self.values {
            Values::Moments(values) => values,
            _ => return Err(Odd),
        };
        if cursor.peek() != b'"' {
            return self.read(cursor);
        }
        match values::moment(cursor.short()?) {
            Some((moment, _)) => values.push(moment),
            None => return self.push_null(),
        }
        self.rows += 1;
        Ok(())
    }

    pub fn push_null(&mut self) -> Read<()> {
        if self.required {
            return Err(Odd);
        }
        self.nulls.push(self.rows as u32);
        self.rows += 1;
        match &mut self.values {
            Values::Integers(values) | Values::Moments(values) => values.push(0),
            Values::Doubles(values) => values.push(0.0),
            Values::Booleans(values) => values.push(0),
            Values::Texts(texts) | Values::Raw(texts) => texts.end(),
            Values::Days(values) => values.push(0),
            Values::Decimals { values, .. } => values.push(0),
            Values::Nulls | Values::Skipped => (),
            Values::Object(fields) => fields.columns.iter_mut().try_for_each(Column::push_null)?,
            Values::List { ends, items } => ends.push(items.rows as i32),
        }
        Ok(())
    }

    /// Forget all after so many rows, also what was begun.
    pub fn cut(&mut self, rows: usize) {
        self.rows = rows;
        for places in [&mut self.nulls, &mut self.changed] {
            while places.last().map_or(false, |row| *row as usize >= rows) {
                places.pop();
            }
        }
        match &mut self.values {
            Values::Integers(values) | Values::Moments(values) => values.truncate(rows),
            Values::Doubles(values) => values.truncate(rows),
            Values::Booleans(values) => values.truncate(rows),
            Values::Texts(texts) | Values::Raw(texts) => texts.cut(rows),
            Values::Days(values) => values.truncate(rows),
            Values::Decimals { values, .. } => values.truncate(rows),
            Values::Nulls | Values::Skipped => (),
            Values::Object(fields) => fields.cut(rows),
            Values::List { ends, items } => {
                ends.truncate(rows);
                items.cut(last(ends));
            }
        }
    }
}

/// The members of an object.
pub struct Fields {
    pub columns: Vec<Column>,
    /// Each name as it is usually written: quoted, with the colon. None for one that JSON has to escape.
    written: Vec<Option<Vec<u8>>>,
    places: HashMap<Vec<u8>, usize>,
}

impl Fields {
    pub fn new(members: Vec<(Vec<u8>, Column)>) -> Self {
        let written = members
            .iter()
            .map(|(name, _)| plain(name).then(|| [b"\"", &name[..], b"\":"].concat()))
            .collect();
        let places = members
            .iter()
            .enumerate()
            .map(|(place, (name, _))| (name.clone(), place))
            .collect();
        Self {
            columns: members.into_iter().map(|(_, column)| column).collect(),
            written,
            places,
        }
    }

    /// Add an object after `rows` others. `others` gets members that have no column; without it they are odd.
    pub fn read(
        &mut self,
        cursor: &mut Cursor,
        rows: usize,
        mut others: Option<&mut Column>,
    ) -> Read<()> {
        cursor.expect(b'{')?;
        cursor.space();
        let (mut more, mut next) = (!cursor.take(b"}"), 0);
        while more {
            match self.place(cursor, next)? {
                Ok(place) => {
                    let column = &mut self.columns[place];
                    if column.rows != rows {
                        return Err(Odd); // twice
                    }
                    column.read(cursor)?;
                    next = place + 1;
                }
                Err(name) => add_other(others.as_deref_mut().ok_or(Odd)?, name, cursor.value()?),
            }
            more = cursor.more(b'}')?;
        }
        self.columns
            .iter_mut()
            .filter(|column| column.rows == rows)
            .try_for_each(Column::push_null)?;
        if let Some(others) = others {
            end_others(others)?;
        }
        Ok(())
    }

    /// Take a name: the place of its column, most often the next one, or the name if it has none.
    #[inline(always)]
    fn place<'a>(&self, cursor: &mut Cursor<'a>, next: usize) -> Read<Result<usize, &'a [u8]>> {
        if let Some(Some(written)) = self.written.get(next) {
            if cursor.take(written) {
                cursor.space();
                return Ok(Ok(next));
            }
        }
        let name = cursor.name()?;
        Ok(self.places.get(name).copied().ok_or(name))
    }

    pub fn cut(&mut self, rows: usize) {
        for column in &mut self.columns {
            column.cut(rows);
        }
    }
}

/// Whether JSON writes a name as it is. These bytes are compared before they are parsed, so they must be JSON.
fn plain(name: &[u8]) -> bool {
    !name
        .iter()
        .any(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))
}

fn add_other(others: &mut Column, name: &[u8], value: &[u8]) {
    if let Values::Raw(texts) = &mut others.values {
        let begun = texts.bytes.len() > last(&texts.ends);
        texts
            .bytes
            .extend_from_slice(if begun { b",\"" } else { b"{\"" });
        for part in [name, b"\":", value] {
            texts.bytes.extend_from_slice(part);
        }
    }
}

fn end_others(others: &mut Column) -> Read<()> {
    if let Values::Raw(texts) = &mut others.values {
        if texts.bytes.len() > last(&texts.ends) {
            texts.bytes.push(b'}');
            texts.end();
            others.rows += 1;
            return Ok(());
        }
    }
    others.push_null()
}
