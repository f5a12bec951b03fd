package dev.headrace.spark;

/** What of a partition may be read: from its oldest offset to before `end`. */
record PartitionEnds(long start, long end) {
  static final PartitionEnds EMPTY = new PartitionEnds(0, 0);
}
