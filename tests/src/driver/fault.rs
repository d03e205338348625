//! Faults and labels on request: what a program or test writes into the mount's `control` file.

use serde::{Deserialize, Serialize};

use super::abi::nr;

/// One line of `control`, JSON: `{"fault":{…}}`, `{"limit":{…}}`, `{"label":{…}}` …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Let coming requests go wrong.
    Fault(Fault),
    /// Change how many bytes a GPU has.
    Limit {
        /// GPU index.
        gpu: usize,
        /// Bytes that CUDA can allocate from now on.
        bytes: u64,
    },
    /// Put a text of the program's own beside all that the writing thread allocates from now on.
    Label {
        /// Free text; empty takes the label away.
        text: String,
    },
    /// The same, with the text that another thread has now: a library's helper thread works for the one that called it.
    LabelLike {
        /// The other thread.
        tid: u32,
    },
    /// Note a named point of the program in the truth log.
    Mark {
        /// Its name.
        name: String,
    },
}

/// Which requests go wrong, and how. The first rule that matches applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// Process; left out: the one that wrote the rule.
    pub pid: Option<u32>,
    /// Request number (0x2b is `RM_ALLOC`); left out: any.
    pub nr: Option<u32>,
    /// Object class, for `RM_ALLOC`; left out: any.
    pub class: Option<u32>,
    /// Matching requests that still go well first.
    pub skip: u32,
    /// Requests that go wrong then; 0 counts as 1.
    pub count: u32,
    /// In-struct status to report; the request is not carried out.
    pub status: Option<u32>,
    /// `errno` to fail the system call with; the request is not carried out.
    pub errno: Option<i32>,
    /// Keep the caller in the driver this long, after the request was carried out.
    pub delay_ms: u64,
    /// Kill the process (SIGKILL) while it is in the driver.
    pub kill: bool,
}

/// The rules in force.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a rule that `writer` wrote.
    pub fn add(&mut self, mut fault: Fault, writer: u32) {
        fault.pid.get_or_insert(writer);
        fault.count = fault.count.max(1);
        self.0.push(fault);
    }

    /// The rule that applies to a request, used up by one.
    pub fn apply(&mut self, pid: u32, number: u32, arg: &[u8]) -> Option<Fault> {
        let class = (number == nr::ALLOC).then(|| arg.get(12..16)).flatten();
        let class = class.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let at = self.0.iter().position(|f| {
            f.pid == Some(pid) && f.nr.is_none_or(|n| n == number) && (f.class.is_none() || f.class == class)
        })?;
        let rule = &mut self.0[at];
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        let fault = rule.clone();
        rule.count -= 1;
        if rule.count == 0 {
            self.0.remove(at);
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_skips_then_counts_then_is_gone() {
        let mut faults = Faults::default();
        faults.add(Fault { nr: Some(nr::FREE), skip: 1, count: 2, status: Some(0x51), ..Fault::default() }, 7);
        assert!(faults.apply(8, nr::FREE, &[]).is_none(), "another process");
        assert!(faults.apply(7, nr::ALLOC, &[]).is_none(), "another request");
        let hits = (0..4).map(|_| faults.apply(7, nr::FREE, &[]).is_some()).collect::<Vec<_>>();
        assert_eq!(hits, [false, true, true, false]);
    }

    #[test]
    fn a_class_is_read_from_the_request() {
        let mut faults = Faults::default();
        faults.add(Fault { class: Some(0x40), errno: Some(5), ..Fault::default() }, 7);
        let mut arg = [0; 48];
        arg[12] = 0x3e;
        assert!(faults.apply(7, nr::ALLOC, &arg).is_none());
        arg[12] = 0x40;
        assert!(faults.apply(7, nr::ALLOC, &arg).is_some());
    }

    #[test]
    fn misspelt_commands_are_refused() {
        assert!(serde_json::from_str::<Command>(r#"{"fault":{"delay":5}}"#).is_err());
        assert!(serde_json::from_str::<Command>(r#"{"limit":{"gpu":0,"bytes":1048576}}"#).is_ok());
    }
}
