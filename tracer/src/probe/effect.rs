//! What a CUDA function does to memory, and which functions are probed together.

/// What a call does to memory when it succeeds.
///
/// Only [`Effect::owns_bytes`] effects add physical bytes of their own in the driver-API ledger; under the ioctl ledger
/// every effect is a label for the driver requests made inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Allocates device memory: linear, pitched or an array.
    Physical,
    /// Frees what [`Effect::Physical`] or [`Effect::Managed`] made (also pool and graph addresses).
    Free,
    /// Creates a physical memory handle (`cuMemCreate`).
    Create,
    /// Drops a reference to a memory or multicast handle.
    Release,
    /// Takes one more reference to a memory handle.
    Retain,
    /// Reserves addresses.
    Reserve,
    /// Gives addresses back.
    Unreserve,
    /// Maps existing memory at an address.
    Map,
    /// Undoes [`Effect::Map`] or [`Effect::Import`].
    Unmap,
    /// Changes who may access a mapping.
    Access,
    /// Creates or binds a multicast object: no bytes.
    Multicast,
    /// Makes memory reachable for another process.
    Export,
    /// Makes another process's memory reachable here: 0 bytes of its own.
    Import,
    /// Allocates managed memory: addresses now, pages as they are touched.
    Managed,
    /// Moves or advises managed memory.
    Residency,
    /// Takes memory out of a stream-ordered pool; the pool may grow inside.
    Suballocate,
    /// Returns memory to its pool.
    Subfree,
    /// Creates, selects or configures a pool.
    Pool,
    /// Shrinks or destroys a pool, or the graph pool.
    PoolTrim,
    /// Allocates pinned host memory.
    Host,
    /// Frees pinned host memory.
    HostFree,
    /// Pins memory that the process already has.
    HostPin,
    /// Unpins it.
    HostUnpin,
    /// Creates or retains a context.
    Context,
    /// Releases, resets or destroys a context.
    ContextEnd,
    /// Makes a context current.
    Current,
    /// Sets a device limit: stacks (local memory), heaps, FIFOs.
    Limit,
    /// Creates a stream: channels.
    Stream,
    /// Destroys a stream.
    StreamEnd,
    /// Lets GPUs reach each other's memory: page tables, channels.
    Peer,
    /// Loads code and constants.
    Load,
    /// Unloads them.
    Unload,
    /// Looks a function or variable up: lazy loading happens inside.
    Lookup,
    /// Adds a node to a graph: a memory node owns no bytes until it is launched or uploaded.
    GraphNode,
    /// Instantiates, updates or uploads an executable graph.
    GraphExec,
    /// Destroys a graph or an executable graph.
    GraphEnd,
    /// Begins stream capture.
    Capture,
    /// Ends it.
    CaptureEnd,
    /// Launches a kernel or graph: local memory may grow, code may load inside.
    Launch,
    /// Reads memory figures.
    Reading,
    /// Checkpoints or restores a process's device memory.
    Checkpoint,
    /// Creates a communicator.
    Communicator,
    /// Destroys a communicator.
    CommunicatorEnd,
    /// A block of a framework's caching allocator was handed out or taken back.
    Tensor,
    /// Such an allocator gave up.
    TensorFailure,
    /// Gives physical memory back and keeps its addresses, until [`Effect::Resume`].
    Pause,
    /// Puts new physical memory behind them.
    Resume,
    /// Anything else in which memory may appear.
    Trigger,
}

impl Effect {
    /// True when a successful call makes physical memory that the caller owns.
    #[must_use]
    pub const fn owns_bytes(self) -> bool {
        matches!(self, Self::Physical | Self::Create)
    }

    /// True when the call takes something out of use: it needs no memory to do so.
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(
            self,
            Self::Free
                | Self::Release
                | Self::Unreserve
                | Self::Unmap
                | Self::Subfree
                | Self::PoolTrim
                | Self::HostFree
                | Self::HostUnpin
                | Self::ContextEnd
                | Self::StreamEnd
                | Self::Unload
                | Self::GraphEnd
                | Self::CommunicatorEnd
        )
    }
}

/// Functions that are probed together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Allocating, freeing, mapping, sharing.
    Memory,
    /// Contexts, limits, streams, peers, checkpoints.
    Context,
    /// Code loading and lookups.
    Load,
    /// Graph nodes, instantiation, capture.
    Graph,
    /// Memory readings the target makes.
    Reading,
    /// NCCL communicators.
    Communicator,
    /// Kernel and graph launches: far too hot for a serving process, and the ioctl inside names its bytes without them.
    Launch,
    /// Switching contexts: hot.
    Current,
    /// Prefetches and advice on managed memory: hot where used, and no process is charged for the pages.
    Residency,
    /// `PyTorch`'s caching allocator, every block of it: hot, with a program of its own. `--tensors off` leaves them out.
    Tensors,
}

impl Group {
    /// True for the groups that are placed unless the user asks otherwise.
    #[must_use]
    pub const fn by_default(self) -> bool {
        !matches!(self, Self::Launch | Self::Current | Self::Residency | Self::Tensors)
    }
}
