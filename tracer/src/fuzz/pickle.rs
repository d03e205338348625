//! A reader of pickles that shares nothing with the writer: as much of `Lib/pickle.py`'s machine as plain data needs, and
//! no more, so that anything else is an error.

use std::collections::HashMap;

/// A value; what was remembered stays where it was first read.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Mark,
    Int(u64),
    Text(String),
    List(usize),
    Dict(usize),
}

/// Reads a snapshot; checks what viewers rely on.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let mut machine = Machine { rest: bytes, ..Machine::default() };
    let root = machine.run()?;
    let segments = machine.list(machine.field(&root, "segments")?)?.clone();
    for segment in &segments {
        let total = machine.int(segment, "total_size")?;
        let blocks = machine.list(machine.field(segment, "blocks")?)?.clone();
        let mut sum = 0_u64;
        let mut at = machine.int(segment, "address")?;
        for block in &blocks {
            if machine.int(block, "address")? != at {
                return Err(format!("a block does not follow the one before: {block:?}"));
            }
            let size = machine.int(block, "size")?;
            sum = sum.checked_add(size).ok_or("blocks larger than any memory")?;
            at = at.saturating_add(size);
        }
        if sum != total {
            return Err(format!("blocks of {sum} bytes in a segment of {total}"));
        }
    }
    machine.list(machine.field(&root, "device_traces")?)?;
    Ok(())
}

#[derive(Default)]
struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Value>,
    memo: HashMap<u32, Value>,
    lists: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Value, String> {
        if self.take(2)? != [0x80, 2] {
            return Err("not protocol 2".into());
        }
        loop {
            match self.take(1)?[0] {
                b'.' => break,
                b'(' => self.stack.push(Value::Mark),
                b']' => {
                    self.lists.push(Vec::new());
                    self.stack.push(Value::List(self.lists.len() - 1));
                }
                b'}' => {
                    self.dicts.push(Vec::new());
                    self.stack.push(Value::Dict(self.dicts.len() - 1));
                }
                b'e' => {
                    let items = self.since_mark()?;
                    match self.stack.last() {
                        Some(Value::List(list)) => self.lists[*list].extend(items),
                        other => return Err(format!("appends to {other:?}")),
                    }
                }
                b'u' => self.set_items()?,
                b'K' => {
                    let byte = self.take(1)?[0];
                    self.stack.push(Value::Int(byte.into()));
                }
                b'J' => {
                    let value = u64::try_from(i32::from_le_bytes(self.array()?)).map_err(|e| e.to_string())?;
                    self.stack.push(Value::Int(value));
                }
                0x8a => self.long()?,
                b'X' => {
                    let len = u32::from_le_bytes(self.array()?);
                    let text = std::str::from_utf8(self.take(len as usize)?).map_err(|e| e.to_string())?;
                    self.stack.push(Value::Text(text.to_owned()));
                }
                b'r' => {
                    let number = u32::from_le_bytes(self.array()?);
                    let last = self.stack.last().filter(|value| **value != Value::Mark).ok_or("nothing to remember")?;
                    self.memo.insert(number, last.clone());
                }
                b'j' => {
                    let number = u32::from_le_bytes(self.array()?);
                    self.stack.push(self.memo.get(&number).ok_or("not remembered")?.clone());
                }
                other => return Err(format!("opcode {other:#x}")),
            }
        }
        let root = self.stack.pop().ok_or("empty")?;
        if self.stack.is_empty() && self.rest.is_empty() { Ok(root) } else { Err("more than one value".into()) }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "too short".into())
    }

    /// Two's complement, little-endian.
    fn long(&mut self) -> Result<(), String> {
        let len = usize::from(self.take(1)?[0]);
        let bytes = self.take(len)?;
        let value =
            bytes.iter().rev().try_fold(0_u128, |value, byte| value.checked_mul(256)?.checked_add((*byte).into()));
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let value = value.filter(|_| !is_negative).and_then(|value| u64::try_from(value).ok());
        self.stack.push(Value::Int(value.ok_or("an integer that no byte count is")?));
        Ok(())
    }

    fn since_mark(&mut self) -> Result<Vec<Value>, String> {
        let at = self.stack.iter().rposition(|value| *value == Value::Mark).ok_or("no mark")?;
        let items = self.stack.split_off(at + 1);
        self.stack.pop();
        Ok(items)
    }

    fn set_items(&mut self) -> Result<(), String> {
        let items = self.since_mark()?;
        let Some(Value::Dict(dict)) = self.stack.last() else { return Err("sets items of no dict".into()) };
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() || !pairs.iter().all(|[key, _]| matches!(key, Value::Text(_))) {
            return Err("keys and values do not take turns".into());
        }
        self.dicts[*dict].extend(pairs.iter().cloned().map(|[key, value]| (key, value)));
        Ok(())
    }

    fn field<'m>(&'m self, of: &Value, key: &str) -> Result<&'m Value, String> {
        let Value::Dict(dict) = of else { return Err(format!("no dict: {of:?}")) };
        let found = self.dicts[*dict].iter().find(|(known, _)| *known == Value::Text(key.to_owned()));
        found.map(|(_, value)| value).ok_or_else(|| format!("no {key}"))
    }

    fn int(&self, of: &Value, key: &str) -> Result<u64, String> {
        match self.field(of, key)? {
            Value::Int(value) => Ok(*value),
            other => Err(format!("{key} is {other:?}")),
        }
    }

    fn list(&self, value: &Value) -> Result<&Vec<Value>, String> {
        let Value::List(list) = value else { return Err(format!("no list: {value:?}")) };
        Ok(&self.lists[*list])
    }
}
