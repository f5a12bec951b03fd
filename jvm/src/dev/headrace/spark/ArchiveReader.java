package dev.headrace.spark;

import java.io.Closeable;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.FileSplit;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.ParquetInputFormat;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.parquet.ParquetReadSupport;
import org.apache.spark.sql.execution.datasources.parquet.VectorizedParquetRecordReader;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads a range of offsets out of an archived file, with Spark's own reader. Only the row groups it needs. */
final class ArchiveReader implements Closeable {
  private static final int ROWS = 8192;

  private final PartitionFolder folder;
  private final ArchivedFile file;
  private final StructType schema;
  private final long from;
  private final long to;
  private final VectorizedParquetRecordReader reader = new VectorizedParquetRecordReader(false, ROWS);
  private ColumnarBatch batch;

  /** Records with from ≤ offset < to. Columns that the file does not have are null. */
  ArchiveReader(PartitionFolder folder, ArchivedFile file, StructType asked, long from, long to) throws IOException {
    this.folder = folder;
    this.file = file;
    this.schema = withOffset(asked);
    this.from = from;
    this.to = to;
    try {
      open();
    } catch (FileNotFoundException error) {
      throw damaged("the archived file is missing", error);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new IOException(error);
    }
  }

  private static StructType withOffset(StructType asked) {
    List<StructField> fields = new ArrayList<>();
    for (StructField field : asked.fields()) {
      // The file may be older than a column that cannot be null.
      fields.add(new StructField(field.name(), field.dataType(), true, field.metadata()));
    }
    StructType found = new StructType(fields.toArray(StructField[]::new));
    boolean there = List.of(asked.fieldNames()).contains(TopicDefinition.OFFSET);
    return there ? found : found.add(TopicDefinition.OFFSET, DataTypes.LongType, true);
  }

  private void open() throws IOException, InterruptedException {
    Configuration conf = configuration();
    Path path = new Path(file.file().toUri());
    FileSplit split = new FileSplit(path, 0, 0, new String[0]);
    try (ParquetFileReader footer =
        ParquetFileReader.open(HadoopInputFile.fromPath(path, conf), ParquetReadOptions.builder().build())) {
      List<BlockMetaData> groups = footer.getFooter().getBlocks();
      int first = file.groupAt(from);
      int last = Math.min(file.groupAt(to - 1), groups.size() - 1);
      if (groups.size() != file.frames().size()) {
        throw damaged("its row groups are not those of the manifest", null);
      }
      long start = groups.get(first).getStartingPos();
      long end = groups.get(last).getStartingPos() + groups.get(last).getCompressedSize();
      split = new FileSplit(path, start, end - start, new String[0]);
    }
    reader.initialize(split, new TaskAttemptContextImpl(conf, new TaskAttemptID()));
    reader.initBatch(new StructType(), InternalRow.empty());
    reader.enableReturningBatches();
  }

  private Configuration configuration() {
    Configuration conf = new Configuration();
    conf.set(ParquetInputFormat.READ_SUPPORT_CLASS, ParquetReadSupport.class.getName());
    conf.set(ParquetReadSupport.SPARK_ROW_REQUESTED_SCHEMA(), schema.json());
    conf.setBoolean("parquet.page.verify-checksum.enabled", true);
    conf.setBoolean(SQLConf.CASE_SENSITIVE().key(), true);
    conf.setBoolean(SQLConf.NESTED_SCHEMA_PRUNING_ENABLED().key(), false);
    for (var entry :
        List.of(
            SQLConf.PARQUET_BINARY_AS_STRING(),
            SQLConf.PARQUET_INT96_AS_TIMESTAMP(),
            SQLConf.PARQUET_INFER_TIMESTAMP_NTZ_ENABLED(),
            SQLConf.LEGACY_PARQUET_NANOS_AS_LONG())) {
      conf.setBoolean(entry.key(), false);
    }
    return conf;
  }

  /** Go to the next rows of the range; false if there are none. */
  boolean next() throws IOException {
    try {
      while (reader.nextBatch()) {
        ColumnarBatch whole = reader.resultBatch();
        ColumnVector offsets = whole.column(schema.fieldIndex(TopicDefinition.OFFSET));
        int first = firstAtLeast(offsets, whole.numRows(), from);
        int last = firstAtLeast(offsets, whole.numRows(), to);
        if (first < last) {
          batch = slice(whole, first, last - first);
          return true;
        }
      }
      return false;
    } catch (IOException | RuntimeException error) {
      throw damaged("it cannot be read", error);
    }
  }

  private static ColumnarBatch slice(ColumnarBatch whole, int first, int rows) {
    ColumnVector[] columns = new ColumnVector[whole.numCols()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new SlicedColumn(whole.column(i), first);
    }
    return new ColumnarBatch(columns, rows);
  }

  private static int firstAtLeast(ColumnVector growing, int rows, long wanted) {
    int low = 0;
    int high = rows;
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (growing.getLong(middle) < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  int rows() {
    return batch.numRows();
  }

  ColumnVector column(String name) {
    return batch.column(schema.fieldIndex(name));
  }

  private LogException damaged(String what, Exception cause) {
    LogException error = LogException.corruptFrame(folder, from, file.file(), 0, "archived: " + what);
    error.initCause(cause);
    return error;
  }

  @Override
  public void close() throws IOException {
    reader.close();
  }
}
