package target

import "math/bits"

const (
	minShift = 12 // the smallest buffer is 4 KiB
	maxClass = 10 // the largest 4 MiB: maxTransfer
)

// newTask returns a zero task.
func (m *Machine) newTask() *task {
	if n := len(m.tasks); n > 0 {
		t := m.tasks[n-1]
		m.tasks = m.tasks[:n-1]
		return t
	}
	return &task{}
}

// free gives back a task and its buffer. Nobody may hold it any more.
func (m *Machine) free(t *task) {
	m.unbuffer(t)
	*t = task{}
	if len(m.tasks) < maxDepth {
		m.tasks = append(m.tasks, t)
	}
}

// buffer gives t a buffer of n bytes; false when the target holds too much.
func (m *Machine) buffer(t *task, n int) bool {
	if n > 1<<(minShift+maxClass) || m.buffered+n > maxBuffered {
		return false
	}
	class := 0
	if n > 1<<minShift {
		class = bits.Len(uint(n-1)) - minShift
	}
	size := 1 << (minShift + class)
	m.buffered += size
	if k := len(m.buffers[class]); k > 0 {
		t.buf = m.buffers[class][k-1][:n]
		m.buffers[class] = m.buffers[class][:k-1]
		m.idle -= size
		return true
	}
	t.buf = make([]byte, n, size)
	return true
}

func (m *Machine) unbuffer(t *task) {
	if t.buf == nil {
		return
	}
	m.giveBack(t.buf)
	t.buf = nil
}

// giveBack takes a buffer that was a task's.
func (m *Machine) giveBack(buf []byte) {
	size := cap(buf)
	m.buffered -= size
	if m.idle+size <= maxIdleBuffers {
		class := bits.Len(uint(size)) - 1 - minShift
		m.buffers[class] = append(m.buffers[class], buf[:0])
		m.idle += size
	}
}
