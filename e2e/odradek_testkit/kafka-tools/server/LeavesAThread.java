/** A tool that leaves a thread running, as a client does that is not closed. For the tests of ToolServer. */
public final class LeavesAThread {
    private static final long PAUSE_MS = 5;

    public static void main(String[] args) {
        Thread thread = new Thread(() -> {
            while (true) {
                System.out.println("printed by a thread that is left");
                System.err.println("printed by a thread that is left");
                try {
                    Thread.sleep(PAUSE_MS);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
