//! RECORD lines to the buffers of Arrow columns, or to masked lines, for `native.py`, which calls it by ctypes.

mod coerce;
mod column;
mod hmac;
mod mask;
mod message;
mod scan;
mod values;

use std::mem::take;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

use column::{Column, Fields, Values};
use mask::Masker;
use message::{values_of, OddLine, Rows};

/// Bytes that some owner keeps.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    start: *const u8,
    size: usize,
}

/// One Arrow array; a nested one is followed by its children. `valid` is empty if nothing is null. Of doubles and
/// instants, `second` is the rows (u32) whose value is not quite what the line says.
#[repr(C)]
pub struct Node {
    rows: usize,
    nulls: usize,
    valid: Bytes,
    first: Bytes,
    second: Bytes,
}

/// What lines became. The nodes: the record's columns without the skipped ones, other members, versions, and times.
#[repr(C)]
pub struct Piece {
    rows: usize,
    lines: usize,
    nodes: *const Node,
    node_count: usize,
    odd: *const OddLine,
    odd_count: usize,
    owner: *mut Owner,
}

/// All memory that a piece points to.
pub struct Owner {
    rows: Rows,
    bitmaps: Vec<Vec<u8>>,
    offsets: Vec<Vec<i32>>,
    nodes: Vec<Node>,
}

fn bytes_of<T>(values: &[T]) -> Bytes {
    Bytes {
        start: values.as_ptr().cast(),
        size: std::mem::size_of_val(values),
    }
}

/// These bytes, without room for more: rows may stay in memory until many are written together.
fn kept<T>(values: &mut Vec<T>) -> Bytes {
    values.shrink_to_fit();
    bytes_of(values)
}

impl Owner {
    fn new(rows: Rows) -> Box<Self> {
        let mut owner = Box::new(Self {
            rows,
            bitmaps: Vec::new(),
            offsets: Vec::new(),
            nodes: Vec::new(),
        });
        let mut rows = std::mem::replace(&mut owner.rows, Rows::new(Fields::new(Vec::new())));
        rows.record
            .columns
            .iter_mut()
            .for_each(|column| owner.add(column));
        for column in [&mut rows.others, &mut rows.version, &mut rows.extracted] {
            owner.add(column);
        }
        owner.rows = rows; // moves the columns, not what they point to
        owner
    }

    fn add(&mut self, column: &mut Column) {
        let none = bytes_of::<u8>(&[]);
        let valid = if column.nulls.is_empty() {
            none
        } else {
            self.valid(column.rows, &column.nulls)
        };
        let (first, second) = match &mut column.values {
            Values::Skipped => return,
            Values::Integers(values) => (kept(values), none),
            Values::Moments(values) => (kept(values), bytes_of(&column.changed)),
            Values::Doubles(values) => (kept(values), bytes_of(&column.changed)),
            Values::Booleans(values) => (self.bits(&take(values)), none),
            Values::Texts(texts) | Values::Raw(texts) => {
                (self.offsets(&take(&mut texts.ends)), kept(&mut texts.bytes))
            }
            Values::Days(values) => (kept(values), none),
            Values::Decimals { values, .. } => (kept(values), none),
            Values::Nulls | Values::Object(_) => (none, none),
            Values::List { ends, .. } => (self.offsets(&take(ends)), none),
        };
        self.nodes.push(Node {
            rows: column.rows,
            nulls: column.nulls.len(),
            valid,
            first,
            second,
        });
        match &mut column.values {
            Values::Object(fields) => fields
                .columns
                .iter_mut()
                .for_each(|column| self.add(column)),
            Values::List { items, .. } => self.add(items),
            _ => (),
        }
    }

    fn valid(&mut self, rows: usize, nulls: &[u32]) -> Bytes {
        let mut bits = vec![0xff; (rows + 7) / 8];
        for row in nulls {
            bits[*row as usize / 8] &= !(1 << (row % 8));
        }
        self.bitmaps.push(bits);
        bytes_of(self.bitmaps.last().unwrap())
    }

    fn bits(&mut self, values: &[u8]) -> Bytes {
        let pack = |eight: &[u8]| {
            eight
                .iter()
                .enumerate()
                .fold(0, |bits, (place, value)| bits | (value << place))
        };
        self.bitmaps.push(values.chunks(8).map(pack).collect());
        bytes_of(self.bitmaps.last().unwrap())
    }

    fn offsets(&mut self, ends: &[i32]) -> Bytes {
        self.offsets.push([&[0], ends].concat());
        bytes_of(self.offsets.last().unwrap())
    }
}

/// A column from what describes it: its kind, 1 if it is required, precision and scale, the number of its children and
/// of its name's bytes (u32, little-endian), the name, the children. None if it is no description.
fn described(text: &mut &[u8]) -> Option<(Vec<u8>, Column)> {
    let head = text.get(..12)?;
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
    let (kind, required, precision, scale) =
        (head[0], head[1] == 1, head[2] as u32, head[3] as u32);
    let (count, length) = (number(4), number(8));
    let name = text.get(12..12 + length)?.to_vec();
    *text = &text[12 + length..];
    let mut children = (0..count)
        .map(|_| described(text))
        .collect::<Option<Vec<_>>>()?;
    let values = match kind {
        b'o' => Values::Object(Fields::new(children)),
        b'l' => Values::List {
            ends: Vec::new(),
            items: Box::new(children.pop()?.1),
        },
        _ => values_of(kind, precision, scale)?,
    };
    Some((name, Column::new(required, values)))
}

fn read(description: &[u8], prefix: &[u8], data: &[u8]) -> Option<Box<Owner>> {
    let (_, record) = described(&mut &description[..])?;
    if let Values::Object(fields) = record.values {
        let mut rows = Rows::new(fields);
        rows.read(data, prefix);
        return Some(Owner::new(rows));
    }
    None
}

unsafe fn view<'a>(bytes: Bytes) -> &'a [u8] {
    if bytes.size == 0 {
        &[]
    } else {
        slice::from_raw_parts(bytes.start, bytes.size)
    }
}

/// Read lines, of less than 2 GiB. Returns false, and gives nothing, for a description that it does not understand, or
/// where it fails. `singer_bridge_free` frees the piece's owner.
///
/// # Safety
/// Each pointer has so many bytes to read, and `piece` is one to write.
#[no_mangle]
pub unsafe extern "C" fn singer_bridge_read(
    description: Bytes,
    prefix: Bytes,
    data: Bytes,
    piece: *mut Piece,
) -> bool {
    if data.size > i32::MAX as usize {
        return false;
    }
    let (description, prefix, data) = (view(description), view(prefix), view(data));
    let owner = match catch_unwind(AssertUnwindSafe(|| read(description, prefix, data))) {
        Ok(Some(owner)) => owner,
        _ => return false,
    };
    *piece = Piece {
        rows: owner.rows.rows,
        lines: owner.rows.lines,
        nodes: owner.nodes.as_ptr(),
        node_count: owner.nodes.len(),
        odd: owner.rows.odd.as_ptr(),
        odd_count: owner.rows.odd.len(),
        owner: Box::into_raw(owner),
    };
    true
}

/// Free all that a piece points to.
///
/// # Safety
/// The owner of a piece, once.
#[no_mangle]
pub unsafe extern "C" fn singer_bridge_free(owner: *mut Owner) {
    drop(Box::from_raw(owner));
}

/// Masked lines, without the odd ones. The place of each odd line in `data` is in `places`.
#[repr(C)]
pub struct MaskedLines {
    data: Bytes,
    odd: *const OddLine,
    places: *const u64,
    odd_count: usize,
    met: Bytes,
    owner: *mut Masker,
}

/// Mask lines, of less than 1 GiB. Returns false, and gives nothing, for a description that it does not understand, or
/// where it fails. `singer_bridge_free_masked` frees the owner.
///
/// # Safety
/// Each pointer has so many bytes to read, and `masked` is one to write.
#[no_mangle]
pub unsafe extern "C" fn singer_bridge_mask(
    description: Bytes,
    prefix: Bytes,
    data: Bytes,
    masked: *mut MaskedLines,
) -> bool {
    if data.size > i32::MAX as usize / 2 {
        return false;
    }
    let (description, prefix, data) = (view(description), view(prefix), view(data));
    let run = || {
        let mut masker = Box::new(Masker::described(description)?);
        masker.mask(data, prefix);
        Some(masker)
    };
    let owner = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Some(owner)) => owner,
        _ => return false,
    };
    *masked = MaskedLines {
        data: bytes_of(&owner.out),
        odd: owner.odd.as_ptr(),
        places: owner.places.as_ptr(),
        odd_count: owner.odd.len(),
        met: bytes_of(&owner.met),
        owner: Box::into_raw(owner),
    };
    true
}

/// Free all that masked lines point to.
///
/// # Safety
/// The owner of masked lines, once.
#[no_mangle]
pub unsafe extern "C" fn singer_bridge_free_masked(owner: *mut Masker) {
    drop(Box::from_raw(owner));
}
