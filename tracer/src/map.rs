//! Tables for what is looked up with every record or row.
//!
//! foldhash is a fifth of `SipHash`'s cost and seeded too, so that a trace cannot know which keys collide.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;
pub(crate) type Set<T> = HashSet<T, RandomState>;
