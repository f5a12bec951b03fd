package dev.headrace.spark;

/** An error of the log. Its message starts with a code by which people and the engine recognise it. */
final class LogException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private LogException(String message) {
    super(message);
  }

  /** Something was asked for that cannot be: an option, a column, a topic. */
  static LogException usage(String message) {
    return new LogException("USAGE " + message);
  }

  /** The bytes at `position` do not make the frame that should be there. */
  static LogException corruptFrame(PartitionFolder folder, long offset, Object file, long position, String what) {
    return new LogException(
        "CORRUPT_FRAME topic `%s` partition %d offset %d: %s in `%s` at position %d; to read on, quarantine the offset"
            .formatted(folder.topic(), folder.partition(), offset, what, file, position));
  }

  /** The offset was deleted by retention, or was never written. */
  static LogException offsetOutOfRange(String topic, int partition, long offset, String why) {
    return new LogException(
        "OFFSET_OUT_OF_RANGE topic `%s` partition %d: offset %d %s".formatted(topic, partition, offset, why));
  }

  /** The checkpoint or the reader knows a topic of this name that is no longer the one in the log. */
  static LogException topicReplaced(String topic, long was, long is) {
    return new LogException(
        "TOPIC_REPLACED topic `%s` was deleted and made again (id %d, now %d); start the query with a new checkpoint"
            .formatted(topic, was, is));
  }

  /** The owner is not there, went away before it answered, or stopped in the middle of something. */
  static LogException ownerLost(String message) {
    return new LogException("owner_lost: " + message);
  }

  /** The owner answered with an error; `code` is one of Headrace's own, such as `batch_conflict`. */
  static LogException fromOwner(String code, String message) {
    return new LogException(code + ": " + message);
  }
}
