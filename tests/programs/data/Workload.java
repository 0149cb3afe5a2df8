// A load with printed results: maps, strings, threads, direct buffers. Argument: a factor.
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

public class Workload {
    public static void main(String[] arguments) throws Exception {
        int scale = Integer.parseInt(arguments[0]);
        long[] sums = new long[4];
        Thread[] threads = new Thread[4];
        for (int t = 0; t < 4; t++) {
            final int id = t;
            threads[t] = new Thread(() -> {
                HashMap<Integer, String> map = new HashMap<>();
                for (int i = 0; i < 100000 * scale; i++) {
                    map.merge(i * 7919 % 5003, "v" + i, (a, b) -> b);
                }
                map.values().forEach(value -> sums[id] += value.hashCode());
            });
            threads[t].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(sums[0] + " " + sums[1] + " " + sums[2] + " " + sums[3]);
        CRC32 sum = new CRC32();
        for (int i = 1; i < 300; i++) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(i * 1000);
            while (buffer.hasRemaining()) {
                buffer.put((byte) i);
            }
            buffer.flip();
            sum.update(buffer);
            Deflater deflater = new Deflater();
            deflater.setInput(new byte[i * 100]);
            deflater.finish();
            sum.update(deflater.deflate(new byte[100000]));
            deflater.end();
        }
        System.out.println(sum.getValue());
    }
}
