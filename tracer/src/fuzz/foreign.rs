//! What else is read of machines and processes that are not to be trusted.

use crate::{attach, live, stack};

/// Any bytes in place of a process's files and memory, the loader's cache, a script, a request.
pub fn foreign(data: &[u8]) {
    let Some((what, data)) = data.split_first() else { return };
    match what % 4 {
        0 => attach::find::foreign(data),
        1 => attach::image::foreign(data),
        2 => stack::fuzz::foreign(data),
        _ => live::http::foreign(data),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let maps = "55d0c0001000-55d0c0400000 r-xp 00001000 fe:01 1234       /usr/bin/python3.11\n\
                7f0000002000-7f0000003000 r-xp 00002000 00:1f 99         /opt/a\\012b/lib.so (deleted)\n";
    let mut cache = b"glibc-ld.so.cache1.1\x01\0\0\0".to_vec();
    cache.resize(48, 0);
    cache.extend([0x0303_u32, 72, 72, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
    cache.extend(b"/usr/lib/libcuda.so.1\0");
    let texts: [(u8, &[u8]); 8] = [
        (0, maps.as_bytes()),
        (2, maps.as_bytes()),
        (0, &cache),
        (0, b"#!/bin/sh\n'''exec' \"/opt/v/bin/python\" \"$0\" \"$@\"\n"),
        (0, b"#!/usr/bin/env -S python3 -u\n"),
        (1, b"python3\0-m\0sglang.launch_server\0--api-key\0sesame\0NCCL_DEBUG=INFO\0HF_TOKEN=hf_abc\0"),
        (3, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
        (2, b"\x07\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0\x04\0\x80\x00\xf0\x0a\x01\x02\xe8\x06\x00"),
    ];
    texts.iter().map(|(what, text)| [&[*what][..], text].concat()).collect()
}

pub(super) fn words() -> Vec<String> {
    ["\\012", " (deleted)", "r-xp", "#!", "'''exec' \"", "/env ", "--api-key", "TOKEN=", "HTTP/1.1", "GET /"]
        .map(str::to_owned)
        .to_vec()
}
