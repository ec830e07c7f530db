//! RECORD lines with some values masked. The other bytes stay as they are; a line that is not plain is odd.

use crate::hmac::Hmac;
use crate::message::{self, OddLine};
use crate::scan::{Cursor, Odd, Read, DEEPEST};

/// Names of an object that are remembered.
const MOST_NAMES: usize = 256;
const STARS: &[u8] = b"\"***\"";
/// Texts that have so many characters keep their last four.
const LONG: usize = 8;

/// What becomes of a value, by the letter that a description has.
#[derive(Clone, Copy, PartialEq)]
pub enum Action {
    Keep,
    Hash,
    Redact,
    Last4,
    Year,
    Drop,
}

impl Action {
    fn of(letter: u8) -> Option<Self> {
        Some(match letter {
            b'k' => Action::Keep,
            b'h' => Action::Hash,
            b'r' => Action::Redact,
            b'l' => Action::Last4,
            b'y' => Action::Year,
            b'd' => Action::Drop,
            _ => return None,
        })
    }
}

/// A glob, in lower case, of a stream's name and a path. `*` stands for any bytes.
struct Rule {
    action: Action,
    glob: Vec<u8>,
}

impl Rule {
    /// The places of the glob that are reached from `places` by these bytes.
    fn after(&self, places: &[u16], bytes: &[u8]) -> Vec<u16> {
        let mut now = self.closed(places);
        for byte in bytes {
            let mut next = Vec::new();
            for place in now {
                match self.glob.get(place as usize) {
                    Some(b'*') => next.push(place),
                    Some(one) if one == byte => next.push(place + 1),
                    _ => (),
                }
            }
            now = self.closed(&next);
            if now.is_empty() {
                break;
            }
        }
        now
    }

    fn closed(&self, places: &[u16]) -> Vec<u16> {
        let mut all = Vec::new();
        for place in places {
            let mut place = *place;
            loop {
                if !all.contains(&place) {
                    all.push(place);
                }
                if self.glob.get(place as usize) != Some(&b'*') {
                    break;
                }
                place += 1;
            }
        }
        all.sort_unstable();
        all
    }
}

struct Member {
    /// In quotes, with its colon.
    name: Vec<u8>,
    action: Action,
    /// The objects below it; None if nothing in them is masked.
    node: Option<usize>,
}

/// Objects below which the same fields are masked: where each rule's glob is, and the names that came so far.
struct Node {
    places: Vec<Vec<u16>>,
    members: Vec<Member>,
}

pub struct Masker {
    rules: Vec<Rule>,
    hmac: Hmac,
    nodes: Vec<Node>,
    pub out: Vec<u8>,
    /// Odd lines; the place in `out` where each belongs is in `places`.
    pub odd: Vec<OddLine>,
    pub places: Vec<u64>,
    /// By rule, 1 if a field met it.
    pub met: Vec<u8>,
    pub lines: usize,
    /// The first byte that is not in `out` yet.
    from: usize,
    text: Vec<u8>,
}

fn part<'a>(text: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = u32::from_le_bytes(text.get(..4)?.try_into().unwrap()) as usize;
    let bytes = text.get(4..4 + size)?;
    *text = &text[4 + size..];
    Some(bytes)
}

impl Masker {
    /// What a description says: the key, the number of the stream's names and each of them with a dot behind it, then
    /// each rule: a letter and its glob. Texts have their length before them (u32, little-endian).
    pub fn described(mut text: &[u8]) -> Option<Self> {
        let hmac = Hmac::new(part(&mut text)?);
        let count = *text.first()? as usize;
        text = &text[1..];
        let names = (0..count)
            .map(|_| part(&mut text))
            .collect::<Option<Vec<_>>>()?;
        let mut rules = Vec::new();
        while let Some((letter, rest)) = text.split_first() {
            text = rest;
            let (action, glob) = (Action::of(*letter)?, part(&mut text)?.to_vec());
            if glob.len() > u16::MAX as usize {
                return None;
            }
            rules.push(Rule { action, glob });
        }
        let start = |rule: &Rule| {
            let mut places = Vec::new();
            for place in names.iter().flat_map(|name| rule.after(&[0], name)) {
                if !places.contains(&place) {
                    places.push(place);
                }
            }
            places
        };
        let root = Node {
            places: rules.iter().map(start).collect(),
            members: Vec::new(),
        };
        Some(Self {
            met: vec![0; rules.len()],
            rules,
            hmac,
            nodes: vec![root],
            out: Vec::new(),
            odd: Vec::new(),
            places: Vec::new(),
            lines: 0,
            from: 0,
            text: Vec::new(),
        })
    }

    /// Mask all lines. Each begins with `prefix`, up to and including `"record":`; an empty one says nothing.
    pub fn mask(&mut self, data: &[u8], prefix: &[u8]) {
        self.out.reserve(data.len() + data.len() / 4);
        let mut cursor = Cursor::new(data);
        while cursor.at < data.len() {
            let (start, begun) = (cursor.at, self.out.len());
            self.from = start;
            if self.line(&mut cursor, prefix).is_ok() {
                self.out
                    .extend_from_slice(&data[self.from..(cursor.at + 1).min(data.len())]);
            } else {
                self.out.truncate(begun);
                let end = cursor.line_end(start);
                self.odd.push([self.lines as u32, start as u32, end as u32]);
                self.places.push(begun as u64);
                cursor.at = end;
            }
            cursor.at += 1;
            self.lines += 1;
        }
    }

    fn line(&mut self, cursor: &mut Cursor, prefix: &[u8]) -> Read<()> {
        message::members(cursor, prefix, |cursor, name| match name {
            b"record" => self.members(cursor, 0, 0),
            b"stream" => cursor.value().map(|_| ()),
            b"version" => cursor.number().map(|_| ()),
            b"time_extracted" => time(cursor),
            _ => Err(Odd), // another reader leaves out what no message has
        })
    }

    fn flush(&mut self, data: &[u8], to: usize) {
        self.out.extend_from_slice(&data[self.from..to]);
        self.from = to;
    }

    fn members(&mut self, cursor: &mut Cursor, node: usize, depth: u32) -> Read<()> {
        cursor.expect(b'{')?;
        cursor.space();
        if depth > DEEPEST {
            return Err(Odd);
        }
        let mut next = 0;
        if cursor.peek() == b'}' {
            cursor.at += 1;
            return Ok(());
        }
        loop {
            let start = cursor.at;
            let (action, below) = self.decided(node, cursor, &mut next)?;
            match action {
                Action::Keep => self.kept(cursor, below, depth)?,
                Action::Drop => {
                    self.flush(cursor.data, start);
                    cursor.value()?;
                    cursor.space();
                    if cursor.peek() == b',' {
                        cursor.at += 1;
                        cursor.space();
                        self.from = cursor.at;
                        continue;
                    }
                    self.from = cursor.at;
                    self.without_comma();
                }
                _ => {
                    self.flush(cursor.data, cursor.at);
                    self.masked(cursor, action, depth)?;
                    self.from = cursor.at;
                }
            }
            if !cursor.more(b'}')? {
                return Ok(());
            }
        }
    }

    /// Take back the comma before a last member that is left out.
    fn without_comma(&mut self) {
        while matches!(self.out.last(), Some(b' ' | b'\t' | b'\r')) {
            self.out.pop();
        }
        if self.out.last() == Some(&b',') {
            self.out.pop();
        }
    }

    fn kept(&mut self, cursor: &mut Cursor, node: Option<usize>, depth: u32) -> Read<()> {
        let node = match node {
            Some(node) => node,
            None => return cursor.value().map(|_| ()),
        };
        match cursor.peek() {
            b'{' => self.members(cursor, node, depth + 1),
            b'[' if depth > DEEPEST => Err(Odd),
            b'[' => {
                cursor.at += 1;
                cursor.space();
                if cursor.peek() == b']' {
                    cursor.at += 1;
                    return Ok(());
                }
                loop {
                    self.kept(cursor, Some(node), depth + 1)?;
                    if !cursor.more(b']')? {
                        return Ok(());
                    }
                }
            }
            _ => cursor.value().map(|_| ()),
        }
    }

    fn masked(&mut self, cursor: &mut Cursor, action: Action, depth: u32) -> Read<()> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let done = match cursor.peek() {
            b'[' if depth > DEEPEST => Err(Odd),
            b'[' => self.items(cursor, action, depth),
            b'n' => cursor
                .literal(b"null")
                .map(|_| self.out.extend_from_slice(b"null")),
            b'{' if matches!(action, Action::Redact | Action::Last4) => {
                cursor.value().map(|_| self.out.extend_from_slice(STARS))
            }
            b'"' => cursor
                .string(&mut text)
                .and_then(|_| self.text(&text, action, true)),
            b't' | b'f' => cursor
                .value()
                .and_then(|value| self.text(value, action, false)),
            _ => cursor.number().and_then(|number| {
                text.extend_from_slice(number.text);
                shortest(&mut text, number.whole)?;
                self.text(&text, action, false)
            }),
        };
        self.text = text;
        done
    }

    fn items(&mut self, cursor: &mut Cursor, action: Action, depth: u32) -> Read<()> {
        cursor.at += 1;
        cursor.space();
        self.out.push(b'[');
        if cursor.peek() == b']' {
            cursor.at += 1;
        } else {
            self.masked(cursor, action, depth + 1)?;
            while cursor.more(b']')? {
                self.out.push(b',');
                self.masked(cursor, action, depth + 1)?;
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn text(&mut self, text: &[u8], action: Action, quoted: bool) -> Read<()> {
        match action {
            Action::Hash => {
                self.out.push(b'"');
                self.hmac.write(text, &mut self.out);
                self.out.push(b'"');
            }
            Action::Redact => self.out.extend_from_slice(STARS),
            Action::Last4 => {
                if !text
                    .iter()
                    .all(|byte| matches!(byte, 0x20 | 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
                {
                    return Err(Odd);
                }
                if text.len() < LONG {
                    self.out.extend_from_slice(STARS);
                } else {
                    self.out.extend_from_slice(b"\"***");
                    self.out.extend_from_slice(&text[text.len() - 4..]);
                    self.out.push(b'"');
                }
            }
            Action::Year => {
                let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let is_date =
                    quoted && digits == 4 && text[0] != b'0' && text.get(4) == Some(&b'-');
                let month = text.get(5..7).unwrap_or(b"--");
                if !is_date || !month.iter().all(u8::is_ascii_digit) {
                    return Err(Odd);
                }
                self.out.extend_from_slice(&text[..4]);
            }
            Action::Keep | Action::Drop => return Err(Odd),
        }
        Ok(())
    }

    /// Read a member's name; what becomes of it, and the objects below it. `next` is where it is looked for first.
    fn decided(
        &mut self,
        node: usize,
        cursor: &mut Cursor,
        next: &mut usize,
    ) -> Read<(Action, Option<usize>)> {
        let here = &self.nodes[node];
        if let Some(member) = here.members.get(*next) {
            if cursor.take(&member.name) {
                cursor.space();
                *next += 1;
                return Ok((member.action, member.node));
            }
        }
        let name = cursor.name()?;
        let quoted = [b"\"", name, b"\":"].concat();
        if let Some(at) = here.members.iter().position(|one| one.name == quoted) {
            *next = at + 1;
            let member = &here.members[at];
            return Ok((member.action, member.node));
        }
        if !name.is_ascii() {
            return Err(Odd);
        }
        let (action, places) = self.judged(node, &name.to_ascii_lowercase());
        let below = self.node_at(places);
        let here = &mut self.nodes[node];
        if here.members.len() < MOST_NAMES {
            here.members.push(Member {
                name: quoted,
                action,
                node: below,
            });
            *next = here.members.len();
        }
        Ok((action, below))
    }

    /// What becomes of a member of these objects, and where each rule's glob is below it.
    fn judged(&mut self, node: usize, name: &[u8]) -> (Action, Vec<Vec<u16>>) {
        let (mut action, mut places) = (Action::Keep, Vec::new());
        for (number, (rule, before)) in self.rules.iter().zip(&self.nodes[node].places).enumerate()
        {
            let after = rule.after(before, name);
            if after.contains(&(rule.glob.len() as u16)) {
                action = rule.action;
                self.met[number] = 1;
            }
            places.push(rule.after(&after, b"."));
        }
        (action, places)
    }

    /// The objects with these places; None if nothing below them is masked.
    fn node_at(&mut self, places: Vec<Vec<u16>>) -> Option<usize> {
        if places.iter().all(Vec::is_empty) {
            return None;
        }
        let existing = self.nodes.iter().position(|node| node.places == places);
        existing.or_else(|| {
            self.nodes.push(Node {
                places,
                members: Vec::new(),
            });
            Some(self.nodes.len() - 1)
        })
    }
}

/// A number's text without zeros that say nothing. One with an exponent is odd.
fn shortest(text: &mut Vec<u8>, whole: bool) -> Read<()> {
    if !whole {
        if text.iter().any(|byte| matches!(byte, b'e' | b'E')) {
            return Err(Odd);
        }
        while text.last() == Some(&b'0') {
            text.pop();
        }
        if text.last() == Some(&b'.') {
            text.pop();
        }
    }
    if text.as_slice() == b"-0" {
        text.remove(0);
    }
    Ok(())
}

/// A text that is a time, as far as its characters tell; another text may be anything.
fn time(cursor: &mut Cursor) -> Read<()> {
    let plain = |byte: &u8| byte.is_ascii_digit() || b"-+:.,TtZz ".contains(byte);
    if cursor.peek() == b'"' && cursor.short()?.iter().all(plain) {
        Ok(())
    } else {
        Err(Odd)
    }
}
