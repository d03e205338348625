//! Numbers of processes that are used again while events are lost.

use super::*;

/// Who holds what: live bytes of each process in order of appearance.
fn each(book: &Book) -> Vec<u64> {
    let live = |process: usize| book.live_at(book.end, |a| a.process == process);
    (0..book.processes.len()).map(live).collect()
}

/// A process of this number has ended and holds nothing; gives when.
fn ended(trace: &mut Trace) -> u64 {
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, MIB);
    let t = trace.t;
    trace.exit(1);
    trace.close(1, 10);
    trace.wait();
    t
}

fn request(t: u64, start: u64, op: Op) -> Record {
    Record::Rm(Rm { t, start, pid: 1, tid: 1, op, ..Rm::default() })
}

fn memory() -> Op {
    let size = Some(8 * MIB);
    Op::Alloc(Alloc { client: 11, parent: 2, object: 100, class: 0x40, size, file: 11, ..Alloc::default() })
}

/// Its fork and its exec were lost: what it does is not done by the dead.
#[test]
fn what_begins_after_the_end_is_another_process() {
    for is_request in [true, false] {
        let mut trace = Trace::new();
        let died = ended(&mut trace);
        let (t, start, api) = (trace.t + 5, trace.t, "cudaMalloc".to_owned());
        assert!(start > died);
        if !is_request {
            let call = Call { t, start, pid: 1, tid: 1, api, size: Some(8 * MIB), ..Call::default() };
            trace.push(Record::Call(call));
        }
        trace.push(request(t, start, memory()));
        let book = trace.book();
        assert_eq!(each(&book), [0, 8 * MIB], "{is_request}");
        assert_eq!((book.processes[1].pid, book.processes[1].died), (1, None));
    }
}

/// A thread that is killed in a request may tell of it after the last thread has told of the end.
#[test]
fn what_began_before_the_end_is_the_dying_processs() {
    let mut trace = Trace::new();
    let died = ended(&mut trace);
    // Nor does one whose beginning was not seen make a process.
    for start in [died - 1, died, 0] {
        trace.push(request(trace.t, start, memory()));
    }
    assert_eq!(trace.book().processes.len(), 1);
}

#[test]
fn what_is_taken_back_after_the_end_is_the_dead_ones() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, MIB);
    trace.exit(1);
    trace.close(1, 10);
    let book = trace.book();
    assert_eq!((each(&book), deaths(&book)), (vec![0], vec![Some(Death::Reclaimed)]));
}

/// A child of a parent that nobody saw begin has not the arguments of who had the parent's number before.
#[test]
fn arguments_are_a_living_parents() {
    let mut trace = Trace::new();
    let image = |word: &str| Image { argv: vec![word.into()], parent: 9, ..Image::default() };
    trace.step(1, Step::Exec(image("first")));
    trace.step(2, Step::Forked { parent: 1 });
    trace.exit(1);
    trace.step(3, Step::Forked { parent: 1 });
    let book = trace.book();
    let commands: Vec<_> = book.processes.iter().map(|p| p.command.join(" ")).collect();
    assert_eq!(commands, ["first", "first", ""]);
}
