// Hive's metastore on a new Derby: first the tables of its locks, which a real one has by its install script.
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

public class Metastore {
  public static void main(String[] words) throws Throwable {
    if (!new java.io.File("derby").exists()) {
      TxnDbUtil.prepDb(new HiveConf());
    }
    HiveMetaStore.main(words);
  }
}
