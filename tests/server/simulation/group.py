"""Processes that exchange objects and file descriptors, in place of gloo: by way of the first of them."""

import time
from multiprocessing import reduction
from multiprocessing.connection import Client, Listener

PATIENCE = 60


class Group:
    """`size` processes that give the same name; this one is number `rank`."""

    def __init__(self, name, rank, size):
        self.name, self.rank, self.size = name, rank, size
        self._peers = []
        if size > 1:
            self._connect("\0vramtrace-group-" + name)

    def _connect(self, address):
        if self.rank == 0:
            with Listener(address, "AF_UNIX", backlog=self.size) as listener:
                made = [listener.accept() for _ in range(1, self.size)]
            self._peers = [peer for _, peer in sorted(((peer.recv(), peer) for peer in made), key=lambda pair: pair[0])]
            return
        deadline = time.monotonic() + PATIENCE
        while not self._peers:
            try:
                self._peers = [Client(address, "AF_UNIX")]
            except (ConnectionRefusedError, FileNotFoundError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)
        self._peers[0].send(self.rank)

    def all_gather(self, value):
        """What each process gave, by rank."""
        if self.rank == 0:
            values = [value] + [peer.recv() for peer in self._peers]
            for peer in self._peers:
                peer.send(values)
            return values
        self._peers[0].send(value)
        return self._peers[0].recv()

    def min(self, value):
        return min(self.all_gather(value))

    def broadcast(self, value):
        """What the first process gave."""
        return self.all_gather(value)[0]

    def all_gather_files(self, fd):
        """File descriptors of the others, by rank; this process's own place holds None."""
        if self.rank:
            root = self._peers[0]
            reduction.send_handle(root, fd, None)
            return [None if rank == self.rank else reduction.recv_handle(root) for rank in range(self.size)]
        files = [fd] + [reduction.recv_handle(peer) for peer in self._peers]
        for to, peer in enumerate(self._peers, 1):
            for rank, file in enumerate(files):
                if rank != to:
                    reduction.send_handle(peer, file, None)
        return [None] + files[1:]

    def broadcast_file(self, fd):
        """The first process's descriptor; `fd` itself in that process."""
        if self.rank:
            return reduction.recv_handle(self._peers[0])
        for peer in self._peers:
            reduction.send_handle(peer, fd, None)
        return fd
