//! One ioctl, from the mount to the reply.

use std::os::fd::AsRawFd;
use std::time::Duration;

use fuser::ReplyIoctl;
use nix::errno::Errno;

use super::abi::{self, Words, nr};
use super::fault::Fault;
use super::fs::{Device, Driver, State, allowed};
use super::rm::Caller;
use super::{caller, ioctl, private};

/// An ioctl as the mount got it.
pub struct Call {
    /// Device it came through.
    pub device: Device,
    /// Number of the open file.
    pub file: u64,
    /// Calling thread.
    pub tid: u32,
    /// Request value.
    pub cmd: u32,
    /// The caller's struct: as many bytes as the request value says.
    pub arg: Vec<u8>,
}

/// Carries out an ioctl and replies, at once or (delays, requests that name a descriptor) from a thread of its own.
pub fn serve(driver: &Driver, call: Call, reply: ReplyIoctl) {
    let magic = call.cmd >> 8 & 0xff;
    match (magic, call.device) {
        (abi::PRIVATE_MAGIC, _) => answer(reply, serve_private(&mut driver.state(), call)),
        // FUSE passes no data with UVM's bare numbers; the simulated libcuda fills in `rmStatus` itself.
        (_, Device::Uvm) => reply.ioctl(0, &[]),
        (abi::MAGIC, _) => serve_rm(driver, call, reply),
        _ => reply.error(fuser::Errno::ENOTTY),
    }
}

fn answer(reply: ReplyIoctl, done: Result<Vec<u8>, Errno>) {
    match done {
        Ok(arg) => reply.ioctl(0, &arg),
        Err(errno) => reply.error(fuser::Errno::from_i32(errno as i32)),
    }
}

fn serve_private(state: &mut State, call: Call) -> Result<Vec<u8>, Errno> {
    let mut arg = call.arg;
    let known = match call.cmd & 0xff {
        // The first two only tell; FUSE takes no reply data for them.
        private::KIND => {
            state.kinds.insert(call.tid, private::text(&arg));
            arg.clear();
            true
        }
        private::MARK => {
            let pid = state.process(call.file, call.tid);
            state.rm.begin();
            private::mark(&mut state.rm, pid, call.tid, &mut arg);
            state.flush_log();
            arg.clear();
            true
        }
        private::GPU => private::describe(&state.rm, &mut arg),
        private::PROCESSES => private::processes(&state.rm, &mut arg),
        _ => false,
    };
    if known { Ok(arg) } else { Err(Errno::EINVAL) }
}

/// A request to the resource manager, unwrapped from `XFER_CMD`.
struct Request {
    number: u32,
    arg: Vec<u8>,
    /// Address in the caller and the outer struct, for a request that came wrapped.
    wrapped: Option<(u64, Vec<u8>)>,
}

impl Request {
    fn unwrap(call: &Call) -> Result<Self, Errno> {
        let (number, mut outer) = (call.cmd & 0xff, call.arg.clone());
        if number != nr::XFER_CMD {
            return Ok(Self { number, arg: outer, wrapped: None });
        }
        let words = Words(&mut outer);
        let (number, len, address) = (words.u32(0), words.u32(4) as usize, words.u64(8));
        let arg = caller::copy_from(call.tid, address, len.min(64 << 10))?;
        Ok(Self { number, arg, wrapped: Some((address, outer)) })
    }

    fn finish(self, call: &Call) -> Result<Vec<u8>, Errno> {
        let Some((address, outer)) = self.wrapped else { return Ok(self.arg) };
        caller::copy_to(call.tid, address, &self.arg)?;
        Ok(outer)
    }
}

fn serve_rm(driver: &Driver, call: Call, reply: ReplyIoctl) {
    let request = match Request::unwrap(&call) {
        Ok(request) if allowed(call.device, request.number) => request,
        Ok(_) => return reply.error(fuser::Errno::EINVAL),
        Err(errno) => return answer(reply, Err(errno)),
    };
    if ioctl::names_a_file(request.number, &request.arg) {
        // Asking which open file a descriptor is goes through this mount: not on the thread that serves it.
        let driver = driver.clone();
        std::thread::spawn(move || {
            let file = ioctl::named_fd(call.tid, &request.arg).and_then(|fd| identify(call.tid, fd));
            carry_out(&driver, &call, request, file.ok(), reply);
        });
    } else {
        carry_out(driver, &call, request, None, reply);
    }
}

/// Number of the open file behind a descriptor of another process.
fn identify(tid: u32, fd: i32) -> Result<u64, Errno> {
    let file = caller::fetch_file(caller::process_of(tid), fd)?;
    let mut number = 0_u64;
    let request = libc::c_ulong::from(2_u32 << 30 | 8 << 16 | abi::PRIVATE_MAGIC << 8 | private::WHO);
    // SAFETY: the request writes 8 bytes, the size encoded in it, to `number`; other files refuse it.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut number) })?;
    Ok(number)
}

fn carry_out(driver: &Driver, call: &Call, mut request: Request, named: Option<u64>, reply: ReplyIoctl) {
    let mut state = driver.state();
    let pid = state.process(call.file, call.tid);
    let kind = state.kinds.get(&call.tid).cloned().unwrap_or_default();
    let label = state.labels.get(&call.tid).cloned().unwrap_or_default();
    let fault = state.faults.apply(pid, request.number, &request.arg).unwrap_or_default();
    state.rm.begin();
    let done = if let Some(errno) = fault.errno {
        Err(Errno::from_raw(errno))
    } else if let Some(status) = fault.status {
        if let Some(at) = abi::status_offset(request.number, request.arg.len()) {
            Words(&mut request.arg).set_u32(at, status);
        }
        Ok(())
    } else {
        let caller = Caller { pid, tid: call.tid, file: call.file, kind, label };
        ioctl::handle(&mut state.rm, &caller, request.number, &mut request.arg, named)
    };
    state.flush_log();
    drop(state);
    finish(&fault, pid, done.and_then(|()| request.finish(call)), reply);
}

/// Replies, after the delay and the kill that a fault asks for.
fn finish(fault: &Fault, pid: u32, done: Result<Vec<u8>, Errno>, reply: ReplyIoctl) {
    if fault.kill {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX));
        // It may be gone already, which is as good.
        _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    if fault.delay_ms == 0 {
        return answer(reply, done);
    }
    let delay = Duration::from_millis(fault.delay_ms);
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        answer(reply, done);
    });
}
