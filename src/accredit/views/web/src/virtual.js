// Only visible rows are drawn: ux budget of 3,000 nodes.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export function useSize(ref) {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const box = ref.current;
    if (!box) return undefined;
    const measure = () => setSize({ width: box.clientWidth, height: box.clientHeight });
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box);
    return () => watch.disconnect();
  }, []);
  return size;
}

// Returns the scroll handler and the range of rows to draw; keeps row `focus` in sight.
export function useWindow(count, rowHeight, focus = null, overscan = 8) {
  const ref = useRef(null);
  const { height, width } = useSize(ref);
  const [top, setTop] = useState(0);
  useEffect(() => {
    const box = ref.current;
    if (!box || focus === null || focus < 0) return;
    const y = focus * rowHeight;
    if (y < box.scrollTop) box.scrollTop = Math.max(0, y - rowHeight);
    else if (y + 2 * rowHeight > box.scrollTop + box.clientHeight) box.scrollTop = y + 3 * rowHeight - box.clientHeight;
  }, [focus, height, count]);
  const first = Math.max(0, Math.floor(top / rowHeight) - overscan);
  const last = Math.min(count, Math.ceil((top + (height || 600)) / rowHeight) + overscan);
  return { ref, first, last, width, onScroll: (event) => setTop(event.currentTarget.scrollTop) };
}
