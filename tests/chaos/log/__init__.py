"""Faults of the local log: killed, cut off from power, damaged, out of disk. Seeded; each ends in lost 0, twice 0,
failed but visible 0, order kept.

    python -m tests.chaos.log --seed 7            everything, at full length
    python -m tests.chaos.log kills --rounds 50   one kind
"""
