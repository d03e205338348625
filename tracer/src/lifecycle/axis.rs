//! The ways to divide memory.

use std::str::FromStr;

#[cfg(doc)]
use crate::ledger::Kind;

/// A way to divide memory. Each allocation lies in exactly one cell of each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Step of the server's life in which the memory was asked for.
    Phase,
    /// Rank of the process, or the process itself where no rank is known.
    Rank,
    /// What the memory is for ([`Kind`]).
    Kind,
    /// Whose code asked for it.
    Owner,
    /// What the process does in the server.
    Role,
    /// GPU.
    Device,
    /// Call stack.
    Stack,
    /// Process.
    Process,
    /// Outermost probed API call.
    Api,
}

impl Axis {
    /// Every axis, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Phase,
        Self::Rank,
        Self::Kind,
        Self::Owner,
        Self::Role,
        Self::Device,
        Self::Stack,
        Self::Process,
        Self::Api,
    ];

    /// Name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Phase => "phase",
            Self::Rank => "rank",
            Self::Kind => "kind",
            Self::Owner => "owner",
            Self::Role => "role",
            Self::Device => "device",
            Self::Stack => "stack",
            Self::Process => "process",
            Self::Api => "api",
        }
    }

    /// True when its cells have an order of their own; those of the others stand by size.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        matches!(self, Self::Phase | Self::Rank | Self::Role | Self::Device | Self::Process)
    }
}

impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|axis| axis.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|axis| axis.name()).collect();
            format!("choose from {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_read_as_typed() {
        for axis in Axis::ALL {
            assert_eq!(axis.name().parse(), Ok(axis));
        }
        assert!("gpu".parse::<Axis>().unwrap_err().contains("device"));
    }
}
