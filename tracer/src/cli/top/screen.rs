//! The terminal, on a thread of its own: keys are answered at once, whatever the collector does.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tracer::live::Snapshot;

use super::draw::{Theme, draw};
use super::state::Top;

/// Longest wait for a key: bounds how late a snapshot is shown.
const WAIT_MS: u8 = 100;
/// Longest wait for the screen's end.
const STOP: Duration = Duration::from_secs(1);

/// A screen that is shown.
pub(super) struct Screen {
    thread: JoinHandle<io::Result<()>>,
    stop: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal over. When somebody quits, or the screen fails, it asks for the end of tracing.
    pub(super) fn start(snapshots: Receiver<Snapshot>, pattern: Option<String>) -> anyhow::Result<Self> {
        // Also makes a panic give the terminal back, whichever thread it is in.
        let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = Builder::new().name("screen".into()).spawn(move || {
            let _asks = AsksForTheEnd;
            show(&mut terminal, &snapshots, pattern, &stopped)
        });
        match thread {
            Ok(thread) => Ok(Self { thread, stop }),
            Err(error) => {
                ratatui::restore();
                Err(error).context("no thread for the screen")
            }
        }
    }

    /// Gives the terminal back, once the thread has ended. One that does not (it writes to a terminal that nobody reads) is
    /// left behind: it goes with the process.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + STOP;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = self.thread.is_finished().then(|| self.thread.join());
        ratatui::restore();
        match ended {
            Some(Ok(shown)) => shown.context("the terminal"),
            Some(Err(_)) => anyhow::bail!("the screen failed: please report what stands above"),
            None => Ok(()),
        }
    }
}

/// However the screen ends, tracing must not go on unseen.
struct AsksForTheEnd;

impl Drop for AsksForTheEnd {
    fn drop(&mut self) {
        super::ask_for_the_end();
    }
}

/// Waits a while; false when the terminal is gone. (crossterm 0.29 would read the end of a terminal over and over.)
fn wait_for_input() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, WAIT_MS) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    Ok(!fds[0].revents().is_some_and(|events| events.intersects(gone)))
}

fn show(
    terminal: &mut DefaultTerminal,
    snapshots: &Receiver<Snapshot>,
    pattern: Option<String>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let (mut top, theme) = (Top::new(pattern), Theme::of_environment());
    let mut changed = true;
    while !stop.load(Ordering::Relaxed) {
        match snapshots.try_recv() {
            Ok(snapshot) => {
                top.update(snapshot);
                changed = true;
            }
            Err(TryRecvError::Empty) => {}
            // Nobody makes any more: the figures would stand still as if all were well.
            Err(TryRecvError::Disconnected) => return Err(io::Error::other("no more snapshots come")),
        }
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| draw(frame, &top, theme))?;
        }
        if !wait_for_input()? {
            return Ok(());
        }
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if top.key(key) => return Ok(()),
                Event::Key(_) | Event::Resize(..) => changed = true,
                _ => {}
            }
        }
    }
    Ok(())
}
