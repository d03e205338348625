//! Writing what a command made: to standard output or to a new file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use clap::ValueEnum;
use tracer::attach::user::Invoker;
use tracer::report::export::Sink;
use tracer::report::text::Style;

/// How a report or a comparison is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Writes `content` to standard output.
pub(super) fn to_stdout(content: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(content).and_then(|()| stdout.flush()).context("cannot write to standard output")
}

/// Colours on a terminal, unless `NO_COLOR` (<https://no-color.org>) is set to anything.
pub(super) fn style() -> Style {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Style { color: io::stdout().is_terminal() && !refused }
}

/// True when the reader of a pipe went away.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// Writes `content` to the file `path`. A file that exists is replaced only with `force`, and only when it is a regular
/// file; symbolic links are not followed. Under sudo the file belongs to the invoking user.
pub(super) fn to_file(path: &Path, content: &[u8], force: bool) -> anyhow::Result<()> {
    let mut file = create(path, force)?;
    file.write_all(content).with_context(|| format!("cannot write {}", path.display()))
}

/// Lets `write` write the file `path`, made under the rules of [`to_file`]; gives its size. What could not be written to its
/// end is removed.
pub(super) fn stream(
    path: &Path,
    force: bool,
    write: impl FnOnce(&mut Sink<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let mut file = BufWriter::with_capacity(1 << 16, create(path, force)?);
    let written = write(&mut file).and_then(|()| file.flush().map_err(Into::into));
    let found = file.get_ref().metadata()?;
    if written.is_err() && found.is_file() {
        let _ = as_invoker(|| fs::remove_file(path));
    }
    written.with_context(|| path.display().to_string())?;
    Ok(file.get_ref().metadata()?.len())
}

/// Does something with files with the rights of whoever called sudo, if somebody did: root's are not lent to a path that
/// others may steer.
fn as_invoker<T: Send>(work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    Ok(match Invoker::from_sudo()? {
        Some(invoker) => invoker.with_files_of(work).context("cannot act as the user who called sudo")?,
        None => work(),
    })
}

fn create(path: &Path, force: bool) -> anyhow::Result<File> {
    as_invoker(|| create_here(path, force))?.map_err(|error| match Invoker::from_sudo() {
        Ok(Some(invoker)) if is_refused(&error) => error.context(invoker.whose_file()),
        _ => error,
    })
}

fn is_refused(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn create_here(path: &Path, force: bool) -> anyhow::Result<File> {
    let shown = path.display();
    let open = |new: bool| {
        OpenOptions::new().write(true).create_new(new).custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY).open(path)
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot write {shown}")),
        // `-o /dev/null` and named pipes hold nothing that could be lost.
        Ok(found) if found.file_type().is_char_device() || found.file_type().is_fifo() => {
            return open(false).with_context(|| format!("cannot write {shown}"));
        }
        Ok(found) if found.is_symlink() => {
            bail!(
                "{shown} is a symbolic link and links are not followed; name the file itself, or - for standard output"
            )
        }
        Ok(found) if !found.is_file() => bail!("{shown} exists and is no regular file; name another file"),
        Ok(_) if !force => bail!("{shown} exists; add --force to replace it, or name another file"),
        // Removed and made anew: another name of the same file keeps its content.
        Ok(_) => fs::remove_file(path).with_context(|| format!("cannot replace {shown}"))?,
    }
    open(true).with_context(|| format!("cannot create {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_made_and_replaced_only_by_force() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.svg");
        to_file(&path, b"one", false).unwrap();
        let error = to_file(&path, b"two", false).unwrap_err();
        assert!(error.to_string().contains("--force"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        to_file(&path, b"two", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn links_and_directories_are_left_alone_even_by_force() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("precious"), directory.path().join("out.svg"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        assert!(to_file(&link, b"x", true).is_err());
        assert!(to_file(directory.path(), b"x", true).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert!(link.is_symlink());
    }

    #[test]
    fn replacing_a_file_leaves_its_other_name_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("out.svg"), directory.path().join("other"));
        fs::write(&path, "precious").unwrap();
        fs::hard_link(&path, &other).unwrap();
        to_file(&path, b"new", true).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"precious");
    }

    #[test]
    fn nothing_half_written_is_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.json");
        let write = |to: &mut Sink<'_>| -> anyhow::Result<()> {
            to.write_all(&[0; 1 << 20])?;
            bail!("the trace is damaged")
        };
        let error = stream(&path, false, write).unwrap_err();
        assert!(format!("{error:#}").ends_with("out.json: the trace is damaged"), "{error:#}");
        assert!(!path.exists());
        assert_eq!(stream(&path, false, |to| Ok(to.write_all(b"four")?)).unwrap(), 4);
    }

    #[test]
    fn devices_may_be_written() {
        to_file(Path::new("/dev/null"), b"x", false).unwrap();
    }

    #[test]
    fn a_closed_pipe_is_told_from_other_errors() {
        let error = |kind| anyhow::Error::from(io::Error::from(kind)).context("cannot write");
        assert!(is_broken_pipe(&error(io::ErrorKind::BrokenPipe)));
        assert!(!is_broken_pipe(&error(io::ErrorKind::StorageFull)));
    }
}
