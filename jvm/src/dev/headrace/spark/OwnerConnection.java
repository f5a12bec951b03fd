package dev.headrace.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Closeable;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** A connection to the log's owner: lines of JSON both ways, with an Arrow stream after some requests. */
final class OwnerConnection implements Closeable {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int ANSWER = 64 << 10;

  private final Path logFolder;
  private final SocketChannel channel;
  private final ByteBuffer received = ByteBuffer.allocate(ANSWER).limit(0);

  private OwnerConnection(Path logFolder, SocketChannel channel) {
    this.logFolder = logFolder;
    this.channel = channel;
  }

  /** Connect to whoever owns the log now; `owner.lock` says where it listens. */
  static OwnerConnection open(Path logFolder) {
    Path socket;
    try {
      JsonNode holder = JSON.readTree(Files.readString(logFolder.resolve("owner.lock")));
      socket = logFolder.resolve(holder.required("socket").asText());
    } catch (IOException | IllegalArgumentException error) {
      throw gone(logFolder, "nobody owns the log", error);
    }
    try {
      return new OwnerConnection(logFolder, SocketChannel.open(UnixDomainSocketAddress.of(socket)));
    } catch (IOException error) {
      throw gone(logFolder, "the owner of the log does not answer", error);
    }
  }

  static ObjectNode request(String op) {
    return JSON.createObjectNode().put("op", op);
  }

  /** For whatever follows a request. */
  SocketChannel channel() {
    return channel;
  }

  JsonNode call(ObjectNode request) {
    try {
      send(request);
    } catch (IOException error) {
      throw lost(error);
    }
    return answer();
  }

  void send(ObjectNode request) throws IOException {
    ByteBuffer line = ByteBuffer.wrap((request + "\n").getBytes(StandardCharsets.UTF_8));
    while (line.hasRemaining()) {
      channel.write(line);
    }
  }

  /** The answer to the oldest request that has none yet. An error of the owner's is thrown with its code. */
  JsonNode answer() {
    JsonNode body;
    try {
      body = JSON.readTree(readLine());
    } catch (JsonProcessingException error) {
      throw gone(logFolder, "the owner of the log answered nonsense", error);
    } catch (IOException error) {
      throw lost(error);
    }
    if (!body.path("ok").asBoolean(false)) {
      JsonNode problem = body.path("error");
      String detail = problem.has("detail") ? " (" + problem.get("detail").asText() + ")" : "";
      throw LogException.fromOwner(
          problem.path("code").asText("error"), problem.path("message").asText("unknown error") + detail);
    }
    return body;
  }

  private String readLine() throws IOException {
    StringBuilder line = new StringBuilder();
    while (true) {
      while (received.hasRemaining()) {
        byte next = received.get();
        if (next == '\n') {
          return new String(line.toString().getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.UTF_8);
        }
        line.append((char) (next & 0xFF));
      }
      received.clear();
      int count = channel.read(received);
      received.flip();
      if (count < 0) {
        throw new IOException("the connection was closed");
      }
    }
  }

  /** What happened when writing to or reading from the owner failed. */
  LogException lost(IOException cause) {
    return gone(logFolder, "the owner of the log went away before it answered", cause);
  }

  private static LogException gone(Path logFolder, String what, Exception cause) {
    LogException error = LogException.ownerLost("%s: `%s` (%s)".formatted(what, logFolder, cause.getMessage()));
    error.initCause(cause);
    return error;
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
