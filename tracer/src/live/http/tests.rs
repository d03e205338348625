use super::*;

fn start() -> (SocketAddr, Page) {
    let page = Page::default();
    (serve(address("0").unwrap(), page.clone(), "text/x-test").unwrap(), page)
}

/// What comes back for these bytes.
fn ask(at: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(request).unwrap();
    rest(&mut stream)
}

fn rest(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn status(answer: &str) -> &str {
    answer.strip_prefix("HTTP/1.1 ").unwrap_or(answer).split(' ').next().unwrap_or_default()
}

#[test]
fn an_address_in_short_is_this_machines_own() {
    for text in ["9400", ":9400", "localhost:9400", "127.0.0.1:9400"] {
        assert_eq!(address(text), Ok("127.0.0.1:9400".parse().unwrap()), "{text}");
    }
    let public = address("0.0.0.0:9400").unwrap();
    assert!(is_public(&public) && is_public(&address("[::]:1").unwrap()) && !is_public(&address("[::1]:1").unwrap()));
    for text in ["", ":", "70000", "-1", "0.0.0.0", "example.org:80", "9400/metrics"] {
        assert!(address(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_page_is_served_once_it_is_there() {
    let (at, page) = start();
    let answer = ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(status(&answer) == "503" && answer.contains("Retry-After: 1\r\n"), "{answer}");
    page.set("old".to_owned());
    page.set("new é\n".to_owned());
    let answer = ask(at, b"GET /metrics?debug=1 HTTP/1.0\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!((status(head), body), ("200", "new é\n"));
    assert!(head.contains("Content-Type: text/x-test\r\nContent-Length: 7\r\n") && head.ends_with("Connection: close"));
    let answer = ask(at, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.contains("Content-Length: 7\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let about = ask(at, b"GET / HTTP/1.1\r\n\r\n");
    assert!(status(&about) == "200" && about.contains("/metrics"), "{about}");
}

#[test]
fn bad_requests_are_told_so() {
    let (at, page) = start();
    page.set("body".to_owned());
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &vec![b'a'; 20_000]].concat();
    let cases: [(&[u8], &str); 9] = [
        (b"GET /nothing HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics/../.. HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET metrics HTTP/1.1\r\n\r\n", "400"),
        (b"GET /metrics HTTP/2\r\n\r\n", "400"),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\xfc\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
        (&long, "431"),
    ];
    for (request, expected) in cases {
        let answer = ask(at, request);
        assert_eq!(status(&answer), expected, "{answer}");
        assert!(!answer.ends_with("body"), "{answer}");
    }
}

#[test]
fn two_requests_at_once_get_one_answer() {
    let (at, page) = start();
    page.set("body".to_owned());
    let answer = ask(at, b"GET /metrics HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n");
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
}

#[test]
fn slow_clients_are_given_up_and_hinder_nobody() {
    let (at, page) = start();
    page.set("body".to_owned());
    let mut silent: Vec<TcpStream> = (0..CLIENTS).map(|_| TcpStream::connect(at).unwrap()).collect();
    // No room for one more; whether its answer arrives before the reset depends on who is faster.
    let mut one_more = TcpStream::connect(at).unwrap();
    let mut answer = String::new();
    _ = one_more.read_to_string(&mut answer);
    assert!(answer.is_empty() || status(&answer) == "503", "{answer}");
    for stream in &mut silent {
        assert_eq!(status(&rest(stream)), "408");
    }
    // One that dribbles has no longer than one that is silent: time counts from the connection.
    let mut slow = TcpStream::connect(at).unwrap();
    let begun = Instant::now();
    while slow.write_all(b"G").is_ok() && begun.elapsed() < 20 * PATIENCE {
        thread::sleep(PATIENCE / 20);
    }
    assert!(begun.elapsed() < 20 * PATIENCE, "it dribbled on");
    drop(silent);
    wait_for_room(at);
}

/// Until somebody is served again.
fn wait_for_room(at: SocketAddr) {
    let begun = Instant::now();
    loop {
        let mut stream = TcpStream::connect(at).unwrap();
        _ = stream.write_all(b"HEAD /metrics HTTP/1.1\r\n\r\n");
        let mut answer = String::new();
        _ = stream.read_to_string(&mut answer);
        if status(&answer) == "200" {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "there is no room again: {answer}");
        thread::sleep(PATIENCE / 10);
    }
}

#[test]
fn who_does_not_read_is_given_up() {
    let (at, page) = start();
    // More than the kernel buffers for both sides.
    page.set("x".repeat(64 << 20));
    let mut deaf: Vec<TcpStream> = (0..CLIENTS).map(|_| TcpStream::connect(at).unwrap()).collect();
    for stream in &mut deaf {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    }
    wait_for_room(at);
}
