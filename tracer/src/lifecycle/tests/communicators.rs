//! Memory of NCCL's own threads, which run no Python.

use super::*;

#[test]
fn a_thread_without_python_is_told_by_the_communicator_being_made() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    scene.communicator(7, 25);
    let proxy = scene.allocate(&["libnccl.so.2"]);
    let python = scene.allocate(&["app.py: main"]);
    let after = scene.allocate(&["libnccl.so.2"]);
    assert_eq!(
        [proxy, python, after].map(|row| scene.phase(row)),
        ["distributed_init.nccl", "unattributed", "unattributed"]
    );
    let owners = [proxy, python, after].map(|row| scene.label(row, Axis::Owner));
    assert_eq!(owners, ["nccl", "unattributed", "nccl"]);
}

#[test]
fn such_a_thread_works_for_the_python_that_waits_for_the_communicator() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    let made_by = |scene: &mut Scene, stack: &[&str]| {
        let stack = scene.t.python_stack(stack);
        scene.communicator_from(7, 25, Some(stack));
        let proxy = scene.allocate(&["libnccl.so.2"]);
        // Beyond the communicator's window.
        scene.t.at(scene.t.book.end + 100);
        scene.log("and so on");
        scene.phase(proxy)
    };
    let early = "sglang/srt/distributed/device_communicators/pynccl.py: PyNcclCommunicator.__init__";
    assert_eq!(made_by(&mut scene, &[RUN, early]), "distributed_init.nccl");
    scene.log("Capture target decode CUDA graph end. elapsed=0.88 s");
    assert_eq!(made_by(&mut scene, &[RUN, LOOP]), "warmup.nccl");
    scene.log("The server is fired up and ready to roll!");
    assert_eq!(made_by(&mut scene, &[RUN, LOOP]), "serving.nccl");
    let draft = "sglang/srt/speculative/eagle_worker.py: EAGLEWorker.__init__";
    let stack = scene.t.python_stack(&[RUN, draft]);
    scene.communicator_from(7, 25, Some(stack));
    let proxy = scene.allocate(&["libnccl.so.2"]);
    assert_eq!(scene.label(proxy, Axis::Role), "draft");
}
