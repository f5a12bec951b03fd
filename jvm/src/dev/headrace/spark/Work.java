package dev.headrace.spark;

import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import scala.Tuple4;
import scala.collection.immutable.Seq;

/**
 * What the tasks of each query do, so that a query that works on a long batch can be told from one that stands still.
 *
 * <p>Spark's executors report the counters of running tasks every ten seconds: records read and shuffled, rows that
 * operators and Python workers have put out. Whenever one of them changes, the task has got on.
 */
public final class Work extends SparkListener {
  /** These grow while a task does nothing. */
  private static final Pattern IDLE = Pattern.compile("time|duration|peak|memory", Pattern.CASE_INSENSITIVE);

  private static final class Stage {
    private final String pool;
    private int running;
    private int finished;
    private final Map<Long, Integer> counters = new TreeMap<>();

    private Stage(String pool) {
      this.pool = pool;
    }
  }

  private final Map<Integer, Stage> stages = new TreeMap<>();

  /** Listen from now on, until {@link SparkContext#removeSparkListener}. */
  public static Work watch(SparkContext context) {
    Work work = new Work();
    context.addSparkListener(work);
    return work;
  }

  /**
   * A text that changes whenever a task of the pool finishes or gets on. If all the pool's tasks wait for a core, the
   * pool has to wait for the others, so what these do counts.
   */
  public synchronized String of(String pool) {
    boolean any = false;
    boolean running = false;
    for (Stage stage : stages.values()) {
      if (stage.pool.equals(pool)) {
        any = true;
        running |= stage.running > 0;
      }
    }
    StringBuilder text = new StringBuilder();
    for (Map.Entry<Integer, Stage> entry : stages.entrySet()) {
      Stage stage = entry.getValue();
      if (stage.pool.equals(pool) || (any && !running)) {
        text.append(entry.getKey()).append(':').append(stage.finished).append(stage.counters).append(' ');
      }
    }
    return text.toString();
  }

  @Override
  public synchronized void onStageSubmitted(SparkListenerStageSubmitted event) {
    String pool = event.properties() == null ? null : event.properties().getProperty("spark.scheduler.pool");
    stages.put(event.stageInfo().stageId(), new Stage(pool == null ? "" : pool));
  }

  @Override
  public synchronized void onStageCompleted(SparkListenerStageCompleted event) {
    stages.remove(event.stageInfo().stageId());
  }

  @Override
  public synchronized void onTaskStart(SparkListenerTaskStart event) {
    Stage stage = stages.get(event.stageId());
    if (stage != null) {
      stage.running++;
    }
  }

  @Override
  public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
    Stage stage = stages.get(event.stageId());
    if (stage != null) {
      stage.running--;
      stage.finished += event.taskInfo().successful() ? 1 : 0;
      stage.counters.remove(event.taskInfo().taskId());
    }
  }

  @Override
  public synchronized void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate event) {
    scala.collection.Iterator<Tuple4<Object, Object, Object, Seq<AccumulableInfo>>> tasks =
        event.accumUpdates().iterator();
    while (tasks.hasNext()) {
      Tuple4<Object, Object, Object, Seq<AccumulableInfo>> task = tasks.next();
      Stage stage = stages.get((Integer) task._2());
      if (stage != null) {
        stage.counters.put((Long) task._1(), hash(task._4()));
      }
    }
  }

  private static int hash(Seq<AccumulableInfo> counters) {
    int hash = 0;
    scala.collection.Iterator<AccumulableInfo> each = counters.iterator();
    while (each.hasNext()) {
      AccumulableInfo counter = each.next();
      boolean idle = counter.name().isDefined() && IDLE.matcher(counter.name().get()).find();
      if (!idle && counter.update().isDefined()) {
        hash += 31 * Long.hashCode(counter.id()) ^ counter.update().get().hashCode();
      }
    }
    return hash;
  }
}
