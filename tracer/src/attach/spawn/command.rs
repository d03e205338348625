//! A command line turned into what `execve` takes, before the fork.

use std::{
    ffi::{CString, OsString},
    os::unix::ffi::OsStringExt,
    ptr,
};

use super::SpawnError;

/// What to execute, ready for use after fork.
#[derive(Debug)]
pub(super) struct Command {
    /// As the user wrote it.
    pub(super) name: OsString,
    /// Where the program may be, in the order of trying.
    pub(super) candidates: Vec<CString>,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
}

impl Command {
    pub(super) fn new(argv: &[OsString], env: &[(OsString, OsString)]) -> Result<Self, SpawnError> {
        let name = argv.first().filter(|name| !name.is_empty()).ok_or(SpawnError::Empty)?.clone();
        let text = |text: OsString| CString::new(text.into_vec()).map_err(|_| SpawnError::Nul);
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
        // What execvp(3) takes where there is no PATH.
        let path = path.unwrap_or_else(|| "/bin:/usr/bin".into());
        let candidates = if name.as_encoded_bytes().contains(&b'/') {
            vec![text(name.clone())?]
        } else {
            let paths = std::env::split_paths(&path).map(|dir| text(dir.join(&name).into_os_string()));
            paths.collect::<Result<_, _>>()?
        };
        let argv = argv.iter().map(|argument| text(argument.clone())).collect::<Result<_, _>>()?;
        let variable = |(name, value): &(OsString, OsString)| text([name.clone(), value.clone()].join("=".as_ref()));
        let env = env.iter().map(variable).collect::<Result<_, _>>()?;
        Ok(Self { name, candidates, argv, env })
    }
}

/// Pointers to strings, then null, as `execve` takes them.
pub(super) fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}
