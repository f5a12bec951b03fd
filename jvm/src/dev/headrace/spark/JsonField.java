package dev.headrace.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/**
 * A field of JSON text, by the names and places on the way to it: a string's text, anything else as JSON, its numbers
 * exactly as they are written. Null if there is no such field or the text is not JSON; what follows the first value is not
 * looked at.
 */
public final class JsonField implements UDF1<String, String> {
  private static final long serialVersionUID = 1L;
  private static final ObjectMapper JSON =
      JsonMapper.builder()
          .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
          .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
          .build();

  private final String[] steps;

  private JsonField(String[] steps) {
    this.steps = steps;
  }

  public static Column of(Column text, String[] steps) {
    return functions.udf(new JsonField(steps), DataTypes.StringType).apply(text);
  }

  @Override
  public String call(String text) {
    if (text == null) {
      return null;
    }
    try {
      JsonNode node = JSON.readTree(text);
      for (String step : steps) {
        node = node.isArray() ? element(node, step) : node.get(step);
        if (node == null) {
          return null;
        }
      }
      return node.isMissingNode() ? null : node.isTextual() ? node.textValue() : JSON.writeValueAsString(node);
    } catch (JsonProcessingException error) {
      return null;
    }
  }

  private static JsonNode element(JsonNode array, String step) {
    try {
      return array.get(Integer.parseInt(step));
    } catch (NumberFormatException notAPlace) {
      return null;
    }
  }
}
