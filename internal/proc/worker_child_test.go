package proc_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes the test binary a worker, of the role that it names.
const roleVariable = "PROC_TEST_WORKER"

// TestMain makes the test binary its own worker.
func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	play, ok := roles()[role]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such role:", role)
		os.Exit(2)
	}
	play()
}

// order is an item as a worker gets it.
type order struct {
	ID      string          `json:"id"`
	Attempt int             `json:"attempt"`
	Item    json.RawMessage `json:"item"`
}

// say prints a line.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// affirm answers an item with itself.
func affirm(o order) { say(`{"id":%q,"ok":true,"result":%s}`, o.ID, o.Item) }

// serve calls each for all orders, until there are no more.
func serve(each func(o order)) {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		each(o)
	}
}

// unlucky is one in five tries.
func unlucky(o order) bool {
	h := fnv.New32a()
	fmt.Fprint(h, o.ID, "/", o.Attempt)
	return h.Sum32()%5 == 0
}

func killSelf() {
	p, _ := os.FindProcess(os.Getpid())
	p.Kill()
	select {}
}

func roles() map[string]func() {
	return map[string]func(){
		"echo":              func() { io.Copy(os.Stdout, os.Stdin) },
		"echo as an answer": echoAnswers,
		"honest":            func() { serve(affirm) },
		"ready": func() {
			say(`{"ready":true}`)
			serve(affirm)
		},
		"unlucky": func() {
			serve(func(o order) {
				if unlucky(o) {
					killSelf()
				}
				affirm(o)
			})
		},
		"poisoned": func() {
			serve(func(o order) {
				if strings.HasPrefix(o.ID, "poison") {
					fmt.Fprintf(os.Stderr, "Traceback\nMemoryError: sk-proj-%s\n", strings.Repeat("abc123XYZ", 5))
					os.Exit(7)
				}
				affirm(o)
			})
		},
		"junk":    func() { serve(func(order) { say("Loading model... sk-proj-%s", strings.Repeat("abc123XYZ", 5)) }) },
		"banner":  func() { say("Welcome!"); time.Sleep(time.Minute) },
		"half":    func() { serve(func(o order) { fmt.Printf(`{"id":%q,"ok":tr`, o.ID); os.Exit(0) }) },
		"unended": func() { serve(func(o order) { fmt.Printf(`{"id":%q,"ok":true}`, o.ID); os.Exit(0) }) },
		"twice":   func() { serve(func(o order) { say("{\"id\":%q,\"ok\":true}\n{\"id\":%[1]q,\"ok\":true}", o.ID) }) },
		"twice later": func() {
			last := ""
			serve(func(o order) {
				if last != "" {
					say(`{"id":%q,"ok":true}`, last)
					time.Sleep(time.Minute)
				}
				affirm(o)
				last = o.ID
			})
		},
		"other":     func() { serve(func(o order) { say(`{"id":"not %s","ok":true}`, o.ID) }) },
		"then junk": func() { serve(func(o order) { say("{\"id\":%q,\"ok\":true}\nbye", o.ID) }) },
		"idle junk": func() {
			serve(func(o order) { affirm(o); time.Sleep(50 * time.Millisecond); say("tick"); time.Sleep(time.Minute) })
		},
		"silent":         func() { serve(func(order) { fmt.Fprintln(os.Stderr, "thinking"); time.Sleep(time.Minute) }) },
		"deaf":           func() { time.Sleep(time.Minute) },
		"ends":           func() { fmt.Fprintln(os.Stderr, "ModuleNotFoundError: No module named 'torch'"); os.Exit(1) },
		"once":           func() { serve(func(o order) { affirm(o); os.Exit(0) }) },
		"early and ends": early,
		"third time": func() {
			serve(func(o order) {
				if o.Attempt%3 != 0 {
					os.Exit(1)
				}
				affirm(o)
			})
		},
		"stubborn":   stubborn,
		"forks":      func() { serve(func(order) { fork(); os.Exit(3) }) },
		"forks well": func() { serve(func(o order) { fork(); affirm(o) }) },
		"child":      func() { signal.Ignore(syscall.SIGTERM); time.Sleep(time.Minute) },
		"floods": func() {
			serve(func(o order) {
				fmt.Fprint(os.Stderr, strings.Repeat("0123456789 flood\n", 1<<20/17))
				affirm(o)
			})
		},
		"floods and ends": func() {
			serve(func(order) {
				fmt.Fprint(os.Stderr, strings.Repeat("0123456789 flood\n", 1<<20/17)+"out of luck\n")
				os.Exit(1)
			})
		},
		"long": func() {
			serve(func(o order) {
				var size int
				json.Unmarshal(o.Item, &size)
				say(`{"id":%q,"ok":true,"result":"%s"}`, o.ID, strings.Repeat("x", size))
			})
		},
		"refuses": func() {
			serve(func(o order) {
				say(`{"id":%q,"ok":false,"error":{"message":"slow down, sk-proj-%s","kind":"rate_limit","retry_after_s":1.5,`+
					`"reset_at":"2030-01-02T03:04:05Z"},"usage":{"input_tokens":12,"output_tokens":3,"cost_usd":0.25}}`, o.ID, strings.Repeat("abc123XYZ", 5))
			})
		},
	}
}

// echoAnswers answers with as little work as there can be: a request's line is an answer once its attempt is made its ok.
func echoAnswers() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		os.Stdout.Write(bytes.Replace(line, []byte(`"attempt":1,"item"`), []byte(`"ok":true,"result"`), 1))
	}
}

// early answers an item of which it has read the beginning.
func early() {
	os.Stdin.Read(make([]byte, 100))
	say(`{"id":"1","ok":true}`)
}

// stubborn is a worker that does not end by itself, nor when it is asked to.
func stubborn() {
	signal.Ignore(syscall.SIGTERM)
	serve(func(o order) {
		if o.ID == "hang" {
			time.Sleep(time.Minute)
		}
		affirm(o)
	})
	time.Sleep(time.Minute)
}

// fork starts a child that outlives its parent, and holds its output.
func fork() {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=child")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		panic(err)
	}
}
