package dev.headrace.spark;

import java.lang.reflect.Field;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.Schedulable;
import org.apache.spark.scheduler.SchedulingAlgorithm;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Whose task is next, where each query has a pool: of those with the fewest tasks at work, the one whose job has waited
 * longest.
 *
 * <p>Spark's own FAIR lets the name decide between them. With more queries than cores, most of them have none at work,
 * and as long as one whose name is earlier in the alphabet has something to do, the others have to wait: for ever, if
 * the machine is busy.
 */
public final class Turns implements SchedulingAlgorithm {
  private static final Logger log = LoggerFactory.getLogger(Turns.class);

  /** Instead of Spark's. A Spark that is made otherwise keeps its own, and says so. */
  public static boolean take(SparkContext context) {
    try {
      Field order = Pool.class.getDeclaredField("taskSetSchedulingAlgorithm");
      order.setAccessible(true);
      order.set(context.taskScheduler().rootPool(), new Turns());
      return true;
    } catch (ReflectiveOperationException | RuntimeException error) {
      log.warn("queries get their turns by their names, as this Spark has it: {}", error.toString());
      return false;
    }
  }

  @Override
  public boolean comparator(Schedulable one, Schedulable other) {
    int shares = Double.compare(share(one), share(other));
    if (shares != 0) {
      return shares < 0;
    }
    int jobs = Integer.compare(oldestJob(one), oldestJob(other));
    return jobs != 0 ? jobs < 0 : one.name().compareTo(other.name()) < 0;
  }

  private static double share(Schedulable pool) {
    return (double) pool.runningTasks() / Math.max(1, pool.weight());
  }

  /** Jobs are numbered as they come; a task set has its job's number for a priority. */
  private static int oldestJob(Schedulable pool) {
    int oldest = Integer.MAX_VALUE;
    for (Schedulable tasks : pool.schedulableQueue()) {
      oldest = Math.min(oldest, tasks.priority());
    }
    return oldest;
  }
}
