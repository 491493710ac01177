package command

import (
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"reflect"
	"sync"
	"time"
)

// output passes on what a command writes. os/exec does it too, but only ends after it has waited for the program, which is too
// soon for us: see running.wait.
type output struct {
	ends    []*os.File // the command's, which we close when it has begun
	streams []stream
	done    chan struct{} // closed when all that was written has been passed on
	mu      sync.Mutex
	err     error
}

type stream struct {
	pipe *os.File
	to   io.Writer
}

// connect gives the command a pipe for every writer. Files it gets as they are, and one pipe where both writers are the same, so
// that they are not written to at the same time.
func (o *output) connect(cmd *exec.Cmd, stdout, stderr io.Writer) (err error) {
	if cmd.Stdout, err = o.end(stdout); err != nil {
		return err
	}
	if stderr != nil && reflect.ValueOf(stderr).Comparable() && stdout == stderr {
		cmd.Stderr = cmd.Stdout
		return nil
	}
	if cmd.Stderr, err = o.end(stderr); err != nil {
		o.close()
	}
	return err
}

func (o *output) end(w io.Writer) (io.Writer, error) {
	if _, ok := w.(*os.File); ok || w == nil {
		return w, nil
	}
	pipe, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.ends = append(o.ends, end)
	o.streams = append(o.streams, stream{pipe, w})
	return end, nil
}

// copy passes on what comes, until all ends are closed or close ends it.
func (o *output) copy() {
	closeAll(o.ends)
	o.done = make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range o.streams {
		wg.Go(func() {
			_, err := io.Copy(s.to, s.pipe)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = s.drain()
			}
			s.pipe.Close() // after an error, the command shall not wait for us to read
			if err != nil && !errors.Is(err, os.ErrClosed) {
				o.mu.Lock()
				o.err = errors.Join(o.err, err)
				o.mu.Unlock()
			}
		})
	}
	go func() {
		wg.Wait()
		close(o.done)
	}()
}

// await waits until all is passed on, or for a time.
func (o *output) await(most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}

// close takes what was written by now, ends the output, whoever still holds it, and returns what went wrong.
func (o *output) close() error {
	closeAll(o.ends)
	for _, s := range o.streams {
		if o.done == nil {
			s.pipe.Close()
		} else if s.pipe.SetReadDeadline(time.Unix(1, 0)) != nil { // where pipes have no deadlines, their job ends all that writes
			o.await(drainTime)
			s.pipe.Close()
		}
	}
	if o.done != nil {
		<-o.done
	}
	return o.err
}

// mostPiped is more than a pipe holds.
const mostPiped = 1 << 20

// drain passes on what is in the pipe: all that the command wrote, which is there before it ends. What it left behind may write on.
func (s stream) drain() error {
	_ = s.pipe.SetReadDeadline(time.Time{})
	raw, err := s.pipe.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	var wrong error
	err = raw.Read(func(fd uintptr) bool {
		for taken := 0; taken < mostPiped && wrong == nil; {
			n, err := readFD(fd, buf)
			if n <= 0 || err != nil {
				break
			}
			_, wrong = s.to.Write(buf[:n])
			taken += n
		}
		return true
	})
	return cmp.Or(wrong, err)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
