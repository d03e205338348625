//! libnccl: communicators, as time windows and as evidence of rank. `since` is NCCL's version.

use super::prelude::*;

// ncclUniqueId is 128 bytes by value, so it lies on the stack and takes no register: the rank is in the third. Its
// first eight bytes are the bootstrap's random number, the same in every rank of a communicator.
const INIT_RANK: [Value; 4] = [handle(out(0)), more("nranks", arg32(1)), more("id", stack(8)), more("rank", arg32(2))];

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    row(Communicator, Group::Communicator, "2.0", &["ncclCommInitRank"],
        "ncclResult_t (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)",
        &INIT_RANK),
    row(Communicator, Group::Communicator, "2.14", &["ncclCommInitRankConfig"],
        "ncclResult_t (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)",
        &INIT_RANK),
    row(Communicator, Group::Communicator, "2.23", &["ncclCommInitRankScalable"],
        "ncclResult_t (ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, \
         ncclConfig_t *config)",
        &[handle(out(0)), more("nranks", arg32(1)), more("rank", arg32(2)), more("id", at_entry(4, 0, 8))]),
    row(Communicator, Group::Communicator, "2.0", &["ncclCommInitAll"],
        "ncclResult_t (ncclComm_t *comm, int ndev, const int *devlist)",
        &[handle(out(0)), more("nranks", arg32(1))]),
    row(Communicator, Group::Communicator, "2.18", &["ncclCommSplit"],
        "ncclResult_t (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)",
        &[handle(out(3)), more("parent", arg(0)), more("color", arg32(1)), more("key", arg32(2))]),
    row(Communicator, Group::Communicator, "2.27", &["ncclCommShrink"],
        "ncclResult_t (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, \
         ncclConfig_t *config, int shrinkFlags)",
        &[handle(out(3)), more("parent", arg(0))]),
    // In ranks that are members already the unique id is null and the rank -1.
    row(Communicator, Group::Communicator, "2.29", &["ncclCommGrow"],
        "ncclResult_t (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, \
         ncclConfig_t *config)",
        &[handle(out(4)), more("parent", arg(0)), more("nranks", arg32(1)), more("rank", arg32(3))]),
    row(CommunicatorEnd, Group::Communicator, "2.14", &["ncclCommFinalize"],
        "ncclResult_t (ncclComm_t comm)",
        &[handle(arg(0))]),
    row(CommunicatorEnd, Group::Communicator, "2.0", &["ncclCommDestroy", "ncclCommAbort"],
        "ncclResult_t (ncclComm_t comm)",
        &[handle(arg(0))]),
    // Labels: the memory is made by cuMemCreate inside.
    row(Trigger, Group::Communicator, "2.19", &["ncclMemAlloc"],
        "ncclResult_t (void **ptr, size_t size)",
        &[address(out(0)), size(arg(1))]),
    row(Trigger, Group::Communicator, "2.19", &["ncclMemFree"],
        "ncclResult_t (void *ptr)",
        &[address(arg(0))]),
];
