package dev.headrace.spark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.arrow.flatbuf.BodyCompression;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.TypeLayout;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The wanted columns of the frames of one schema version, as Arrow vectors over the frame's bytes: nothing is copied
 * unless it is compressed, and what is not wanted is not even looked at. One frame at a time; `clear` before the bytes
 * are used for another.
 */
final class FrameColumns implements AutoCloseable {
  private static final int PREFIX = 8;
  private static final int CONTINUATION = -1;
  private static final Field OFFSET =
      new Field(TopicDefinition.OFFSET, FieldType.notNullable(new ArrowType.Int(64, true)), List.of());

  /** How many nodes and buffers of the message belong to a column, its children included. */
  private record Extent(boolean wanted, int nodes, int buffers) {}

  private final List<Extent> extents = new ArrayList<>();
  private final VectorSchemaRoot root;
  private final VectorLoader loader;
  private final BufferAllocator allocator;

  FrameColumns(Schema schema, boolean hasOffsets, Set<String> wanted, BufferAllocator allocator) {
    List<Field> fields = new ArrayList<>(schema.getFields());
    Set<String> names = new HashSet<>(wanted);
    if (hasOffsets) {
      fields.add(0, OFFSET);
      names.add(TopicDefinition.OFFSET); // a range of offsets is found by them
    }
    List<Field> kept = new ArrayList<>();
    for (Field field : fields) {
      boolean keep = names.contains(field.getName());
      extents.add(new Extent(keep, countNodes(field), countBuffers(field)));
      if (keep) {
        kept.add(field);
      }
    }
    this.allocator = allocator;
    root = VectorSchemaRoot.create(new Schema(kept), allocator);
    loader = new VectorLoader(root);
  }

  private static int countNodes(Field field) {
    return 1 + field.getChildren().stream().mapToInt(FrameColumns::countNodes).sum();
  }

  private static int countBuffers(Field field) {
    int own = TypeLayout.getTypeBufferCount(field.getType());
    return own + field.getChildren().stream().mapToInt(FrameColumns::countBuffers).sum();
  }

  /** Point the vectors at a frame's batch message. */
  void load(ArrowBuf message) {
    ByteBuffer bytes = message.nioBuffer(0, (int) message.capacity()).order(ByteOrder.LITTLE_ENDIAN);
    if (bytes.getInt(0) != CONTINUATION) {
      throw new IllegalStateException("a frame's body is not an Arrow message");
    }
    int metadataLength = bytes.getInt(4);
    Message header = Message.getRootAsMessage(bytes.slice(PREFIX, metadataLength).order(ByteOrder.LITTLE_ENDIAN));
    if (header.headerType() != MessageHeader.RecordBatch) {
      throw new IllegalStateException("a frame's body is not an Arrow record batch");
    }
    int bodyStart = PREFIX + metadataLength;
    List<ArrowBuf> opened = new ArrayList<>();
    try (ArrowRecordBatch batch = select((RecordBatch) header.header(new RecordBatch()), message, bodyStart, opened)) {
      loader.load(batch);
    } finally {
      opened.forEach(ArrowBuf::close); // the vectors have their own references now
    }
  }

  /** The wanted columns' part of a batch. What had to be decompressed for it is added to `opened`. */
  private ArrowRecordBatch select(RecordBatch batch, ArrowBuf message, long bodyStart, List<ArrowBuf> opened) {
    List<ArrowFieldNode> nodes = new ArrayList<>();
    List<ArrowBuf> buffers = new ArrayList<>();
    BodyCompression compression = batch.compression();
    FieldNode node = new FieldNode();
    Buffer buffer = new Buffer();
    int nodeAt = 0;
    int bufferAt = 0;
    for (Extent extent : extents) {
      for (int i = 0; extent.wanted && i < extent.nodes; i++) {
        batch.nodes(node, nodeAt + i);
        nodes.add(new ArrowFieldNode(node.length(), node.nullCount()));
      }
      for (int i = 0; extent.wanted && i < extent.buffers; i++) {
        batch.buffers(buffer, bufferAt + i);
        ArrowBuf bytes = message.slice(bodyStart + buffer.offset(), buffer.length());
        if (compression != null) {
          bytes = CompressedBuffer.open(bytes, compression.codec(), allocator);
          opened.add(bytes);
        }
        buffers.add(bytes);
      }
      nodeAt += extent.nodes;
      bufferAt += extent.buffers;
    }
    // Frames align their buffers already; asking Arrow to would make it copy.
    return new ArrowRecordBatch(
        (int) batch.length(), nodes, buffers, NoCompressionCodec.DEFAULT_BODY_COMPRESSION, false);
  }

  /** The loaded column, or null if frames of this version have none of that name. */
  FieldVector vector(String name) {
    return root.getVector(name);
  }

  /** The first row of the loaded frame whose offset is at least `offset`. */
  int rowAtOffset(FrameHeader frame, long offset) {
    if (frame.hasOffsets()) {
      return firstAtLeast((BigIntVector) root.getVector(TopicDefinition.OFFSET), offset);
    }
    return (int) Math.max(0, Math.min(frame.rows(), offset - frame.baseOffset()));
  }

  private static int firstAtLeast(BigIntVector growing, long wanted) {
    int low = 0;
    int high = growing.getValueCount();
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (growing.get(middle) < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** Let go of the frame's bytes. */
  void clear() {
    root.clear();
  }

  @Override
  public void close() {
    root.close();
  }
}
