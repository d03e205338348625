use bytemuck::Zeroable;
use proptest::prelude::*;

use super::*;
use crate::trace::record::Alloc;

const H200: Abi = Abi { branch: Some(580) };
const FILE: u64 = 0xffff_8881_0000_0000;
const OTHER: u64 = 0xffff_8881_0000_0100;

fn put(bytes: &mut [u8], fields: &[(usize, u64, usize)]) {
    for &(at, value, len) in fields {
        bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    }
}

/// An ioctl with the given fields: offset, value, length.
fn ioctl(
    cmd: u32,
    arg_len: usize,
    arg: &[(usize, u64, usize)],
    params_len: usize,
    params: &[(usize, u64, usize)],
) -> Ioctl {
    let mut ioctl = Ioctl { cmd, file: FILE, other_file: OTHER, ..Ioctl::zeroed() };
    ioctl.arg_len = arg_len as u32;
    ioctl.params_len = params_len as u32;
    put(&mut ioctl.arg, arg);
    put(&mut ioctl.params, params);
    ioctl
}

fn rm_alloc(class: u64) -> Ioctl {
    let arg = [(0, 0xc1d0_001d, 4), (4, 0x5c00_0002, 4), (8, 0x5c00_00fc, 4), (12, class, 4)];
    let params = [(8, 0x1c101, 4), (24, 0x1800_0000, 4), (64, 123_731_968, 8)];
    ioctl(request(RM_ALLOC, 48), 48, &arg, 128, &params)
}

fn only(ioctl: &Ioctl, abi: Abi) -> (u32, Op) {
    let decoded = decode(ioctl, abi).expect("of interest");
    let [op] = &decoded.ops[..] else { panic!("{decoded:?}") };
    (decoded.status, op.clone())
}

fn reason(ioctl: &Ioctl, abi: Abi) -> String {
    match only(ioctl, abi) {
        (0, Op::Unknown { cmd, why }) if cmd == ioctl.cmd => why,
        other => panic!("{other:?}"),
    }
}

fn vidmem() -> Alloc {
    Alloc {
        client: 0xc1d0_001d,
        parent: 0x5c00_0002,
        object: 0x5c00_00fc,
        class: 0x40,
        size: Some(123_731_968),
        attr: Some(0x1800_0000),
        flags: Some(0x1c101),
        file: FILE,
        ..Alloc::default()
    }
}

#[test]
fn request_values_are_the_documented_ones() {
    // As strace of CUDA programs shows them.
    assert_eq!(request(RM_ALLOC, 48), 0xc030_462b);
    assert_eq!(request(RM_VID_HEAP_CONTROL, 184), 0xc0b8_464a);
    assert_eq!(request(RM_ALLOC_MEMORY, 56), 0xc038_4627);
}

#[test]
fn rm_alloc_in_its_three_sizes() {
    let mut call = rm_alloc(0x40);
    assert_eq!(only(&call, H200), (0, Op::Alloc(vidmem())));
    put(&mut call.arg, &[(40, 0x51, 4)]);
    assert_eq!(only(&call, H200).0, 0x51, "NVOS64 status");

    let mut call = rm_alloc(0x40);
    (call.cmd, call.arg_len) = (request(RM_ALLOC, 32), 32);
    put(&mut call.arg, &[(28, 0x51, 4)]);
    assert_eq!(only(&call, H200), (0x51, Op::Alloc(vidmem())), "NVOS21 status");

    let mut call = rm_alloc(0x40);
    (call.cmd, call.arg_len) = (request(RM_ALLOC, 40), 40);
    put(&mut call.arg, &[(36, 0x51, 4)]);
    assert_eq!(only(&call, Abi { branch: Some(525) }), (0x51, Op::Alloc(vidmem())));
    assert_eq!(only(&call, Abi { branch: Some(515) }), (0, Op::Alloc(vidmem())), "status@32 there");
    assert!(reason(&call, H200).contains("40 bytes"));
}

#[test]
fn root_and_device_objects() {
    let mut root = rm_alloc(0x41);
    put(&mut root.arg, &[(0, 0, 4), (4, 0, 4), (8, 0xc1d0_0001, 4)]);
    let (_, Op::Alloc(made)) = only(&root, H200) else { panic!() };
    assert_eq!((made.client, made.object, made.size), (0xc1d0_0001, 0xc1d0_0001, None));

    let mut device = rm_alloc(0x80);
    put(&mut device.params, &[(0, 5, 4)]);
    let (_, Op::Alloc(made)) = only(&device, H200) else { panic!() };
    assert_eq!((made.class, made.device_id, made.size), (0x80, Some(5), None));
}

#[test]
fn what_cannot_be_trusted_is_unknown() {
    let mut serialised = rm_alloc(0x40);
    put(&mut serialised.arg, &[(36, 1, 4)]);
    assert!(reason(&serialised, H200).contains("FINN"));

    let mut larger = rm_alloc(0x40);
    put(&mut larger.arg, &[(32, 136, 4)]);
    assert!(reason(&larger, H200).contains("136 bytes"));
    put(&mut larger.arg, &[(32, 120, 4)]);
    assert_eq!(only(&larger, H200).1, Op::Alloc(vidmem()));

    let mut unread = rm_alloc(0x40);
    unread.params_len = 0;
    assert!(reason(&unread, H200).contains("could not be read"));

    let mut short = rm_alloc(0x40);
    short.arg_len = 40;
    assert!(reason(&short, H200).contains("shorter"));

    assert_eq!(reason(&rm_alloc(0x40), Abi { branch: Some(700) }), "driver branch 700 is not known");
    assert_eq!(reason(&rm_alloc(0x40), Abi::default()), "the driver's version is unknown");
    assert!(reason(&ioctl(request(RM_FREE, 24), 24, &[], 0, &[]), H200).contains("24 bytes"));
    assert!(reason(&ioctl(request(RM_VID_HEAP_CONTROL, 184), 184, &[(8, 99, 4)], 0, &[]), H200).contains("99"));
}

#[test]
fn serialised_parameters_of_other_classes_do_not_matter() {
    let mut channel = rm_alloc(0xc86f);
    put(&mut channel.arg, &[(32, 368, 4), (36, 1, 4)]);
    let (0, Op::Alloc(made)) = only(&channel, H200) else { panic!() };
    assert_eq!((made.class, made.size), (0xc86f, None));
}

#[test]
fn failed_system_calls_are_failures() {
    let mut call = rm_alloc(0x40);
    call.ret = -14;
    assert_eq!(only(&call, H200).0, STATUS_UNKNOWN);
    put(&mut call.arg, &[(40, 0x1a, 4)]);
    assert_eq!(only(&call, H200).0, 0x1a);
}

#[test]
fn heap_control_functions() {
    let heap = |fields: &[(usize, u64, usize)]| {
        let mut call =
            ioctl(request(RM_VID_HEAP_CONTROL, 184), 184, &[(0, 0xc1d0_001d, 4), (4, 0x5c00_0002, 4)], 0, &[]);
        put(&mut call.arg, fields);
        only(&call, H200)
    };
    let common = [(44, 0x5c00_00fc, 4), (52, 0x1c101, 4)];
    let alloc_size = [&common[..], &[(8, 2, 4), (56, 0x1800_0000, 4), (88, 123_731_968, 8)]].concat();
    assert_eq!(heap(&alloc_size), (0, Op::Alloc(vidmem())));
    let range = [&common[..], &[(8, 14, 4), (56, 0x1800_0000, 4), (80, 123_731_968, 8)]].concat();
    assert_eq!(heap(&range), (0, Op::Alloc(vidmem())));
    let tiled = [&common[..], &[(8, 6, 4), (64, 0x1800_0000, 4), (88, 123_731_968, 8), (20, 0x51, 4)]].concat();
    assert_eq!(heap(&tiled), (0x51, Op::Alloc(vidmem())));
    assert_eq!(heap(&[(8, 3, 4), (44, 0x5c00_00fc, 4)]), (0, Op::Free { client: 0xc1d0_001d, object: 0x5c00_00fc }));
    let (_, Op::Alloc(pages)) = heap(&[(8, 27, 4), (40, 7, 4), (72, 0xfff, 8)]) else { panic!() };
    assert_eq!((pages.object, pages.class, pages.size), (7, 0x71, Some(4096)));
    let info = ioctl(request(RM_VID_HEAP_CONTROL, 184), 184, &[(8, 5, 4)], 0, &[]);
    assert_eq!(decode(&info, H200), None);
}

#[test]
fn heap_classes() {
    let class = |flags: u64, attr: u64, attr2: u64| {
        let fields = [(8, 2, 4), (52, flags, 4), (56, attr, 4), (144, attr2, 4)];
        let (_, Op::Alloc(made)) = only(&ioctl(request(RM_VID_HEAP_CONTROL, 184), 184, &fields, 0, &[]), H200) else {
            panic!()
        };
        made.class
    };
    assert_eq!(class(0x0008_0000, 0, 0), 0x50a0);
    assert_eq!(class(0, 0, 1 << 24), 0x42);
    assert_eq!(class(0, 0x1800_0000, 0), 0x40);
    assert_eq!(class(0, 1 << 25, 0), 0x3e);
    assert_eq!(class(0, 3 << 25, 0), 0x3e);
}

#[test]
fn legacy_alloc_memory() {
    let call = |class| {
        let fields = [(0, 1, 4), (4, 2, 4), (8, 3, 4), (12, class, 4), (32, 0x1f_ffff, 8)];
        let (0, Op::Alloc(made)) = only(&ioctl(request(RM_ALLOC_MEMORY, 56), 56, &fields, 0, &[]), H200) else {
            panic!()
        };
        (made.class, made.size)
    };
    assert_eq!(call(0x3e), (0x3e, Some(2 << 20)));
    assert_eq!(call(0x71), (0x71, Some(2 << 20)));
    assert_eq!(call(0x40), (0x40, Some(0)), "a query, not memory");
}

#[test]
fn free_and_dup() {
    let call = ioctl(request(RM_FREE, 16), 16, &[(0, 1, 4), (4, 2, 4), (8, 3, 4), (12, 0x57, 4)], 0, &[]);
    assert_eq!(only(&call, H200), (0x57, Op::Free { client: 1, object: 3 }));
    let fields = [(0, 1, 4), (4, 2, 4), (8, 3, 4), (12, 4, 4), (16, 5, 4), (24, 6, 4)];
    assert_eq!(
        only(&ioctl(request(RM_DUP_OBJECT, 28), 28, &fields, 0, &[]), H200),
        (6, Op::Dup { client: 1, parent: 2, object: 3, source_client: 4, source_object: 5 })
    );
}

fn control(cmd: u32, params: &[(usize, u64, usize)]) -> Ioctl {
    ioctl(request(RM_CONTROL, 32), 32, &[(0, 1, 4), (8, cmd.into(), 4)], 128, params)
}

#[test]
fn controls() {
    let id = control(CMD_GPU_GET_ID_INFO_V2, &[(0, 0xf00, 4), (8, 3, 4)]);
    assert_eq!(only(&id, H200), (0, Op::GpuId { gpu_id: 0xf00, instance: 3 }));
    assert_eq!(decode(&control(0x2080_1303, &[]), H200), None);

    let export = control(CMD_EXPORT_OBJECT_TO_FD, &[(12, 7, 4)]);
    assert_eq!(only(&export, H200).1, Op::Export { client: 1, object: 7, file: OTHER, index: 0 });
    assert_eq!(decode(&control(CMD_EXPORT_OBJECT_TO_FD, &[(20, 1, 4)]), H200), None, "an empty file");
    let import = control(CMD_IMPORT_OBJECT_FROM_FD, &[(12, 2, 4), (16, 7, 4)]);
    assert_eq!(only(&import, H200).1, Op::Import { client: 1, parent: 2, object: 7, file: OTHER, index: 0 });

    let mut serialised = control(CMD_IMPORT_OBJECT_FROM_FD, &[]);
    put(&mut serialised.arg, &[(12, 4, 4)]);
    assert!(reason(&serialised, H200).contains("FINN"));
}

#[test]
fn plural_controls() {
    let export = control(CMD_EXPORT_OBJECTS_TO_FD, &[(76, 7, 4), (80, 0, 4), (84, 9, 4), (124, 3, 2), (126, 4, 2)]);
    assert_eq!(
        decode(&export, H200).unwrap().ops,
        [
            Op::Export { client: 1, object: 7, file: OTHER, index: 4 },
            Op::Export { client: 1, object: 9, file: OTHER, index: 6 },
        ]
    );
    let import = control(CMD_IMPORT_OBJECTS_FROM_FD, &[(4, 2, 4), (8, 7, 4), (12, 99, 4), (124, 1, 2)]);
    assert_eq!(only(&import, H200).1, Op::Import { client: 1, parent: 2, object: 7, file: OTHER, index: 0 });
    let many = control(CMD_IMPORT_OBJECTS_FROM_FD, &[(124, 40, 2)]);
    assert!(matches!(&only(&many, H200).1, Op::Unknown { why, .. } if why.contains("40 objects, 29")));
}

#[test]
fn fd_control_table_agrees_with_the_structs() {
    for control in FD_CONTROLS {
        assert!(control.fd + 4 <= control.size.min(124), "the descriptor is among the captured bytes");
        assert!(control.tail == 0 || control.tail + 4 == control.size, "numObjects and index end the struct");
    }
}

#[test]
fn uvm_requests() {
    // From a real H200 process: the UUID's bytes as its two words.
    let fields =
        [(0, 0x8778_5a0b_f54b_5e1b, 8), (8, 0x2a12_fc9a_cc34_6c62, 8), (20, 0xc1d0_001d, 4), (24, 0x5c00_0009, 4)];
    let uuid = "GPU-1b5e4bf5-0b5a-7887-626c-34cc9afc122a".to_owned();
    assert_eq!(
        only(&ioctl(UVM_REGISTER_GPU_VASPACE, 32, &fields, 0, &[]), H200),
        (0, Op::RegisterVaspace { uuid, client: 0xc1d0_001d, vaspace: 0x5c00_0009 })
    );
    let fields = [(0, 0x7f00, 8), (8, 0x20_0000, 8), (16, 0x1000, 8), (36, 1, 4), (40, 2, 4), (44, 3, 4)];
    assert_eq!(
        only(&ioctl(UVM_MAP_EXTERNAL_ALLOCATION, 48, &fields, 0, &[]), H200),
        (3, Op::Map { base: 0x7f00, length: 0x20_0000, offset: 0x1000, client: 1, object: 2 })
    );
    assert!(reason(&ioctl(UVM_MAP_EXTERNAL_ALLOCATION, 24, &fields[..3], 0, &[]), H200).contains("shorter"));
    let free = ioctl(UVM_FREE, 24, &[(0, 0x7f00, 8), (8, 0x1f, 4), (16, 5, 4)], 0, &[]);
    assert_eq!(only(&free, H200), (5, Op::Unmap { base: 0x7f00 }));
    assert_eq!(only(&free, Abi { branch: Some(590) }), (0x1f, Op::Unmap { base: 0x7f00 }), "no length since 590");
    let unmap = ioctl(UVM_UNMAP_EXTERNAL, 40, &[(0, 0x7f00, 8), (32, 5, 4)], 0, &[]);
    assert_eq!(only(&unmap, H200), (5, Op::Unmap { base: 0x7f00 }));
    assert_eq!(decode(&ioctl(37, 40, &[], 0, &[]), H200), None);
    assert_eq!(decode(&ioctl(0x3000_0001, 16, &[], 0, &[]), H200), None);
}

#[test]
fn versions() {
    assert_eq!(Abi::of("580.159.04\n"), H200);
    assert_eq!(Abi::of("unknown").branch, None);
    for (version, tail) in [
        ("535.288.01", Some(1176)),
        ("550.40.07", Some(1176)),
        ("550.54.14", Some(9240)),
        ("580.159.04", Some(9240)),
        ("550", None),
        ("700.1", None),
        ("470.1", None),
        ("", None),
    ] {
        assert_eq!(uvm_map_tail(version), tail, "{version}");
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_without_panic(
        cmd in prop_oneof![
            any::<u32>(),
            (0u32..0x60, 0u32..200).prop_map(|(nr, size)| request(nr, size)),
            0u32..80,
        ],
        arg in proptest::collection::vec(any::<u8>(), tracer_ebpf::IOCTL_ARG),
        params in proptest::collection::vec(any::<u8>(), tracer_ebpf::IOCTL_PARAMS),
        (arg_len, params_len) in any::<(u32, u32)>(),
        short in 0u32..200,
        branch in proptest::option::of(500u32..640),
    ) {
        let mut call = Ioctl { cmd, ..Ioctl::zeroed() };
        call.arg.copy_from_slice(&arg);
        call.params.copy_from_slice(&params);
        for len in [arg_len, short] {
            (call.arg_len, call.params_len) = (len, params_len);
            drop(decode(&call, Abi { branch }));
        }
    }
}
