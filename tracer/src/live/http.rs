//! A responder of HTTP/1.1 for one page of text, over `std` alone.
//!
//! Whoever connects is nobody's friend: a request has [`PATIENCE`] from the connection to its last byte, the answer as long;
//! a head may have [`HEAD`] bytes; [`CLIENTS`] are served at once, each on a thread, and others turned away. Nothing that a
//! client sends reaches the tracer.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time for a request, and for its answer.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(5) };
/// Longest head of a request, bytes: a scraper's has some hundred.
const HEAD: usize = 8 * 1024;
/// Clients served at once.
const CLIENTS: usize = 16;
/// What `/` says.
const ABOUT: &str =
    "vramtrace: GPU memory of traced processes.\n\n/metrics has it for Prometheus (text format 0.0.4).\n";

/// The page served: replaced whole, so that nobody sees half of one.
#[derive(Clone, Debug, Default)]
pub struct Page(Arc<Mutex<Option<Arc<str>>>>);

impl Page {
    /// Puts a new text in place.
    pub fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
    }

    fn get(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An answer.
struct Answer {
    status: &'static str,
    content_type: &'static str,
    more: &'static str,
    body: Arc<str>,
}

impl Answer {
    fn plain(status: &'static str, body: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", more: "", body: body.into() }
    }
}

/// Reads an address to serve at: a port, or `:PORT`, is one of this machine alone; another address must be written in full.
///
/// # Errors
/// A sentence for whoever typed it.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok(),
        None => text.parse().ok(),
    };
    address.ok_or_else(|| {
        "give a port (9400: this machine only) or an address and port (0.0.0.0:9400, [::1]:9400)".to_owned()
    })
}

/// True where others than this machine may connect.
#[must_use]
pub fn is_public(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => !ip.is_loopback(),
        IpAddr::V6(ip) => ip != Ipv6Addr::LOCALHOST,
    }
}

/// Serves `page` as `/metrics`, of a media type, from now on. Gives the address, with the port that was found for port 0.
///
/// # Errors
/// The address is taken, or not ours.
pub fn serve(address: SocketAddr, page: Page, content_type: &'static str) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &page, content_type))?;
    Ok(bound)
}

fn accept(listener: &TcpListener, page: &Page, content_type: &'static str) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, say: that passes, and is nothing to spin on.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS {
            clients.fetch_sub(1, Ordering::Relaxed);
            turn_away(stream);
            continue;
        }
        let (page, guest) = (page.clone(), Guest(Arc::clone(&clients)));
        let served = thread::Builder::new().name("scrape".into()).spawn(move || {
            // A client that left, or was too slow, has nobody else to blame.
            _ = answer(stream, &page, content_type);
            drop(guest);
        });
        drop(served);
    }
}

/// Counts a client while it is served.
struct Guest(Arc<AtomicUsize>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says that there is no room, if that can be said without waiting.
fn turn_away(mut stream: TcpStream) {
    if stream.set_nonblocking(true).is_ok() {
        _ = stream.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
}

fn answer(mut stream: TcpStream, page: &Page, content_type: &'static str) -> io::Result<()> {
    let (answer, is_head) = match head(&mut stream)? {
        Ok(head) => respond(&head, page, content_type),
        Err(refusal) => (refusal, false),
    };
    let Answer { status, content_type, more, body } = answer;
    let length = body.len();
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    .into_bytes();
    if !is_head {
        bytes.extend_from_slice(body.as_bytes());
    }
    write_within(&mut stream, &bytes)?;
    linger(&mut stream)
}

/// Writes all, within [`PATIENCE`] however slowly it is read.
fn write_within(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

/// Closes so that the answer arrives: a close with bytes unread would reset the connection, and with it the answer.
fn linger(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(std::net::Shutdown::Write)?;
    let until = Instant::now() + Duration::from_secs(1);
    let (mut buffer, mut read) = ([0; 1024], 0);
    while read < HEAD {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut buffer)? {
            0 => break,
            n => read += n,
        }
    }
    Ok(())
}

/// Time left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads the head of a request, or says what is wrong with it. Anything behind it is ignored.
fn head(stream: &mut TcpStream) -> io::Result<Result<Vec<u8>, Answer>> {
    let until = Instant::now() + PATIENCE;
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let read =
            left(until).and_then(|left| stream.set_read_timeout(Some(left))).and_then(|()| stream.read(&mut buffer));
        match read {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => head.extend_from_slice(&buffer[..n]),
            // Linux says EAGAIN for a time that ran out.
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(Err(Answer::plain("408 Request Timeout", "no request came in time\n")));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(Ok(head));
        }
        if head.len() > HEAD {
            return Ok(Err(Answer::plain("431 Request Header Fields Too Large", "the request is too long\n")));
        }
    }
}

/// Takes any bytes for a request.
#[cfg(any(test, fuzzing))]
pub(crate) fn foreign(bytes: &[u8]) {
    std::hint::black_box(respond(bytes, &Page::default(), super::metrics::CONTENT_TYPE));
}

/// The answer to a request, and whether only its head is wanted.
fn respond(head: &[u8], page: &Page, content_type: &'static str) -> (Answer, bool) {
    let bad = || (Answer::plain("400 Bad Request", "this is no request of HTTP/1\n"), false);
    let Some(line) = head.split(|&b| b == b'\r').next().and_then(|line| std::str::from_utf8(line).ok()) else {
        return bad();
    };
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = parts[..] else { return bad() };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !target.starts_with('/') {
        return bad();
    }
    if !matches!(method, "GET" | "HEAD") {
        let answer = Answer::plain("405 Method Not Allowed", "there is nothing here but to read\n");
        return (Answer { more: "Allow: GET, HEAD\r\n", ..answer }, false);
    }
    let answer = match (target.split('?').next().unwrap_or_default(), page.get()) {
        ("/metrics", Some(body)) => Answer { status: "200 OK", content_type, more: "", body },
        ("/metrics", None) => {
            let answer = Answer::plain("503 Service Unavailable", "tracing has only begun: there are no figures yet\n");
            Answer { more: "Retry-After: 1\r\n", ..answer }
        }
        ("/", _) => Answer::plain("200 OK", ABOUT),
        _ => Answer::plain("404 Not Found", "there is / and /metrics\n"),
    };
    (answer, method == "HEAD")
}

#[cfg(test)]
mod tests;
