//! Comparisons of ledgers built by hand, and of any.

mod books;
mod cases;
mod properties;
mod whole;
