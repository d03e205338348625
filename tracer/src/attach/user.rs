//! The user who called `sudo vramtrace`: the traced command is theirs, and so are the files we write.

use std::{
    ffi::{CString, OsString},
    io,
    path::PathBuf,
    thread,
};

use nix::{
    errno::Errno,
    unistd::{Gid, Uid, User, geteuid, getgrouplist, getresgid, getresuid, setgroups, setresgid, setresuid},
};

/// Why the invoking user cannot be told.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UserError {
    /// sudo's variables are damaged.
    #[error("{name}={value} is not a number: run through sudo again, or use --as-root")]
    NotANumber {
        /// Variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The passwd database does not know the user.
    #[error("no user has the id {0} that SUDO_UID names: use --as-root to run the command as root")]
    NoSuchUser(u32),
    /// `SUDO_GID` is no group of the user's.
    #[error("user {user} is not in group {gid} that SUDO_GID names: use --as-root to run the command as root")]
    ForeignGroup {
        /// User name.
        user: String,
        /// Group id.
        gid: u32,
    },
    /// A database could not be read.
    #[error("cannot look up user {0}: {1}")]
    Lookup(u32, Errno),
}

/// The user who called sudo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoker {
    /// User id.
    pub uid: Uid,
    /// Primary group id.
    pub gid: Gid,
    /// All groups.
    pub groups: Vec<Gid>,
    /// Login name.
    pub name: String,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

impl Invoker {
    /// The user that `SUDO_UID` and `SUDO_GID` name. `None` when this process is not root, was not started by sudo, or
    /// was started by root itself.
    ///
    /// # Errors
    /// The variables name no user, or a group that the user is not in.
    pub fn from_sudo() -> Result<Option<Self>, UserError> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let variable = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::from_ids(variable("SUDO_UID"), variable("SUDO_GID"))
    }

    fn from_ids(uid: Option<String>, gid: Option<String>) -> Result<Option<Self>, UserError> {
        let number = |name, value: String| value.parse().map_err(|_| UserError::NotANumber { name, value });
        let Some(uid) = uid.map(|uid| number("SUDO_UID", uid)).transpose()? else { return Ok(None) };
        if uid == 0 {
            return Ok(None);
        }
        let lookup = |errno| UserError::Lookup(uid, errno);
        let user = User::from_uid(Uid::from_raw(uid)).map_err(lookup)?.ok_or(UserError::NoSuchUser(uid))?;
        let login = CString::new(user.name.as_str()).map_err(|_| lookup(Errno::EINVAL))?;
        let groups = getgrouplist(&login, user.gid).map_err(lookup)?;
        let gid = gid.map(|gid| number("SUDO_GID", gid)).transpose()?.map_or(user.gid, Gid::from_raw);
        if !groups.contains(&gid) {
            return Err(UserError::ForeignGroup { user: user.name, gid: gid.as_raw() });
        }
        Ok(Some(Self { uid: user.uid, gid, groups, name: user.name, home: user.dir, shell: user.shell }))
    }

    /// The environment a command of this user should have: what sudo set for root is set back (`HOME`, `USER`,
    /// `LOGNAME`, `SHELL`, `MAIL`), what it added (`SUDO_*`) is removed, all else, `PATH` too, stays.
    pub fn environment(&self, inherited: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
        let own = [
            ("HOME", self.home.clone().into_os_string()),
            ("USER", self.name.clone().into()),
            ("LOGNAME", self.name.clone().into()),
            ("SHELL", self.shell.clone().into_os_string()),
            ("MAIL", format!("/var/mail/{}", self.name).into()),
        ];
        let kept = inherited.into_iter().filter(|(name, _)| {
            !own.iter().any(|(other, _)| name == other) && !name.as_encoded_bytes().starts_with(b"SUDO_")
        });
        let kept: Vec<_> = kept.collect();
        kept.into_iter().chain(own.into_iter().map(|(name, value)| (name.into(), value))).collect()
    }

    /// Why a file cannot be made with these rights where ours would do.
    #[must_use]
    pub fn whose_file(&self) -> String {
        format!("the file would belong to {}, who called sudo", self.name)
    }

    /// Does something with files as this user: what they may not open, create or remove, is refused, and what is created
    /// is theirs. So a path that somebody else steers by a link gains nothing from our being root, and a file system that
    /// does not know root (NFS) lets it happen.
    ///
    /// On a thread of its own: the kernel keeps these ids a thread, and drops root's rights over files with them
    /// (setfsuid(2), capabilities(7)).
    ///
    /// # Errors
    /// There is no thread to be had, or it could not become the user; `work` was not done then.
    pub fn with_files_of<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let groups: Vec<libc::gid_t> = self.groups.iter().map(|group| group.as_raw()).collect();
        let (uid, gid) = (self.uid.as_raw(), self.gid.as_raw());
        let become_them = move || {
            // SAFETY: system calls that change this thread alone, unlike libc's setgroups(3), on an array that outlives them.
            unsafe {
                if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) != 0 {
                    return Err(io::Error::last_os_error());
                }
                libc::syscall(libc::SYS_setfsgid, gid);
                libc::syscall(libc::SYS_setfsuid, uid);
                // They report nothing but the ids before: an id that changes nothing asks for the present one.
                let now = (libc::syscall(libc::SYS_setfsuid, -1), libc::syscall(libc::SYS_setfsgid, -1));
                if now == (uid.into(), gid.into()) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
            }
        };
        thread::scope(|scope| {
            let worker =
                thread::Builder::new().name("files".into()).spawn_scoped(scope, || become_them().map(|()| work()))?;
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Becomes this user for good. Only system calls, no allocation: may be called between fork and exec.
    ///
    /// # Errors
    /// A call failed, or root could be had again: the process must then not go on.
    pub fn drop_privileges(&self) -> Result<(), Errno> {
        // Groups first: afterwards there is no right to set them.
        setgroups(&self.groups)?;
        setresgid(self.gid, self.gid, self.gid)?;
        setresuid(self.uid, self.uid, self.uid)?;
        let (users, groups) = (getresuid()?, getresgid()?);
        let root = Uid::from_raw(0);
        let dropped = [users.real, users.effective, users.saved].iter().all(|&uid| uid == self.uid)
            && [groups.real, groups.effective, groups.saved].iter().all(|&gid| gid == self.gid)
            && setresuid(root, root, root) == Err(Errno::EPERM);
        if dropped { Ok(()) } else { Err(Errno::EPERM) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fs::File, os::unix::fs::MetadataExt};

    use nix::{
        sys::wait::{WaitStatus, waitpid},
        unistd::{ForkResult, Group, fork},
    };

    use super::*;

    /// An account that every Debian, Fedora and Ubuntu has, other than root.
    pub(in super::super) fn somebody() -> Invoker {
        let user = User::from_name("nobody").unwrap().expect("an account named nobody");
        Invoker::from_ids(Some(user.uid.to_string()), Some(user.gid.to_string())).unwrap().unwrap()
    }

    fn ids(uid: &str, gid: &str) -> Result<Option<Invoker>, UserError> {
        Invoker::from_ids(Some(uid.into()), Some(gid.into()))
    }

    #[test]
    fn sudos_variables_are_checked() {
        assert_eq!(Invoker::from_ids(None, Some("1".into())), Ok(None));
        assert_eq!(ids("0", "0"), Ok(None));
        assert!(matches!(ids("1x", "0"), Err(UserError::NotANumber { name: "SUDO_UID", .. })));
        assert!(matches!(ids("-1", "0"), Err(UserError::NotANumber { .. })));
        assert_eq!(ids("3999999999", "0"), Err(UserError::NoSuchUser(3_999_999_999)));
        let somebody = somebody();
        let uid = somebody.uid.to_string();
        assert!(matches!(ids(&uid, "0"), Err(UserError::ForeignGroup { gid: 0, .. })));
        assert_eq!(Invoker::from_ids(Some(uid), None), Ok(Some(somebody)));
    }

    #[test]
    fn the_environment_is_the_users() {
        let root =
            [("HOME", "/root"), ("PATH", "/opt/bin:/bin"), ("SUDO_UID", "1000"), ("SUDO_COMMAND", "x"), ("A", "b")];
        let somebody = somebody();
        let environment = somebody.environment(root.map(|(name, value)| (name.into(), value.into())));
        let get = |name: &str| environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
        assert_eq!(get("HOME"), Some(somebody.home.clone().into()));
        assert_eq!(get("USER"), Some("nobody".into()));
        assert_eq!(get("LOGNAME"), Some("nobody".into()));
        assert_eq!(get("PATH"), Some("/opt/bin:/bin".into()));
        assert_eq!(get("A"), Some("b".into()));
        assert_eq!(environment.iter().filter(|(name, _)| name == "HOME").count(), 1);
        assert!(!environment.iter().any(|(name, _)| name.to_string_lossy().starts_with("SUDO")));
    }

    #[test]
    fn privileges_are_gone_for_good_and_files_are_theirs() {
        if !geteuid().is_root() {
            return eprintln!("skipped: needs root");
        }
        let somebody = somebody();
        // SAFETY: the child makes system calls only and ends with `_exit`.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let dropped = somebody.drop_privileges().is_ok();
                let root = Uid::from_raw(0);
                let back = setresuid(root, root, root).is_ok() || setgroups(&[Gid::from_raw(0)]).is_ok();
                let groups = nix::unistd::getgroups().is_ok_and(|groups| !groups.contains(&Gid::from_raw(0)));
                let code = i32::from(!(dropped && !back && groups && geteuid() == somebody.uid));
                // SAFETY: ends the process without running what belongs to its parent.
                unsafe { libc::_exit(code) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("theirs");
        let created = somebody.with_files_of(|| File::create(&path)).unwrap();
        assert_eq!(created.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "the directory is root's alone");
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let created = somebody.with_files_of(|| File::create(&path)).unwrap().unwrap();
        assert_eq!(created.metadata().unwrap().uid(), somebody.uid.as_raw());
        assert!(File::create(dir.path().join("ours")).is_ok_and(|file| file.metadata().unwrap().uid() == 0));
        assert!(Group::from_gid(somebody.gid).unwrap().is_some());
        assert!(geteuid().is_root(), "only the child has changed");
    }
}
