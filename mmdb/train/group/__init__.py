"""Several workers on one candidate: a group that shares each step, and means of states.

group.py          who is in a group, and where its members find each other
failure.py        what a member that fails tells the others
rendezvous.py     the driver's side: names groups and lets them meet
transport.py      torch.distributed at the edge
sums.py           sums over the members in rank order
communicator.py   a member's side: messages and sums between the members
gradients.py      a module's gradients as flat buffers
plan.py           which rows each member takes in each step
group_pass.py     one pass of a group over as many partitions
replay.py         the same pass in one process
mean.py           the weighted mean of named tensors
average.py        the mean of encoded states
"""
