package dev.headrace.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The driver's part: what the tasks have staged becomes visible at once, or is forgotten. */
final class Transaction {
  private static final Logger LOG = LoggerFactory.getLogger(Transaction.class);

  private Transaction() {}

  /** One run of a query stages each of its batches under a name of its own. */
  static String name(String run, long epoch) {
    return run + "-" + epoch;
  }

  static void commit(Path logFolder, String transaction, WriterCommitMessage[] messages, BatchIdentity identity) {
    ObjectNode request = OwnerConnection.request("commit").put("transaction", transaction);
    ArrayNode tasks = request.putArray("tasks");
    for (WriterCommitMessage message : messages) {
      if (message instanceof StagedTask staged && staged.rows() > 0) {
        tasks.addArray().add(staged.task()).add(staged.attempt());
      }
    }
    if (identity != null) {
      request.set("identity", identity.json());
    }
    try (OwnerConnection owner = OwnerConnection.open(logFolder)) {
      owner.call(request);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** A courtesy: the owner forgets by itself what nobody commits. It must not hide why the batch failed. */
  static void abort(Path logFolder, String transaction) {
    try (OwnerConnection owner = OwnerConnection.open(logFolder)) {
      owner.call(OwnerConnection.request("abort").put("transaction", transaction));
    } catch (IOException | LogException error) {
      LOG.debug("could not abort {}", transaction, error);
    }
  }
}
