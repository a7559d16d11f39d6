package diskraft;

/**
 * A test wants to look into the process of a node. It cannot be judged, so it counts as skipped. This is no exception,
 * because tests that wait for something take those for "not yet".
 */
final class LooksInside extends Error {
    private static final long serialVersionUID = 1;

    LooksInside(String what) {
        super("the test looks into a node's process: " + what);
    }
}
