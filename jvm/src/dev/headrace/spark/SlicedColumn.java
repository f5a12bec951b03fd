package dev.headrace.spark;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column from some row on. The column itself belongs to whoever made it. */
final class SlicedColumn extends ColumnVector {
  private final ColumnVector whole;
  private final int first;

  SlicedColumn(ColumnVector whole, int first) {
    super(whole.dataType());
    this.whole = whole;
    this.first = first;
  }

  @Override
  public boolean hasNull() {
    return whole.hasNull();
  }

  @Override
  public int numNulls() {
    return whole.numNulls();
  }

  @Override
  public boolean isNullAt(int row) {
    return whole.isNullAt(first + row);
  }

  @Override
  public boolean getBoolean(int row) {
    return whole.getBoolean(first + row);
  }

  @Override
  public byte getByte(int row) {
    return whole.getByte(first + row);
  }

  @Override
  public short getShort(int row) {
    return whole.getShort(first + row);
  }

  @Override
  public int getInt(int row) {
    return whole.getInt(first + row);
  }

  @Override
  public long getLong(int row) {
    return whole.getLong(first + row);
  }

  @Override
  public float getFloat(int row) {
    return whole.getFloat(first + row);
  }

  @Override
  public double getDouble(int row) {
    return whole.getDouble(first + row);
  }

  @Override
  public ColumnarArray getArray(int row) {
    return whole.getArray(first + row);
  }

  @Override
  public ColumnarMap getMap(int row) {
    return whole.getMap(first + row);
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    return whole.getDecimal(first + row, precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    return whole.getUTF8String(first + row);
  }

  @Override
  public byte[] getBinary(int row) {
    return whole.getBinary(first + row);
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    return new SlicedColumn(whole.getChild(ordinal), first);
  }

  @Override
  public void close() {}
}
