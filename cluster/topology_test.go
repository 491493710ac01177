package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-llm/sluice/cluster"
)

func TestSentinelsNameTheServerThatCanBeWrittenTo(t *testing.T) {
	first := newServer(t, "--requirepass", "a-pass-word-1", "--masterauth", "a-pass-word-1")
	second := newServer(t, "--requirepass", "a-pass-word-1", "--masterauth", "a-pass-word-1", "--replicaof", fmt.Sprintf("127.0.0.1 %d", first.port))
	conf := fmt.Sprintf("sentinel monitor main 127.0.0.1 %d 1\nsentinel auth-pass main a-pass-word-1\nsentinel down-after-milliseconds main 500\n"+
		"sentinel failover-timeout main 2000", first.port)
	sentinel := newServer(t, "--sentinel", conf)
	url := sentinel.url() + "?master_set=main"
	if text, hint, settings := refused(t, cluster.Config{URL: sentinel.url() + "?master_set=other"}); !strings.Contains(text, "do not know the server name") || hint == "" || !settings {
		t.Errorf("a name that is not known: %s (hint: %s)", text, hint)
	}
	if text, _, _ := refused(t, cluster.Config{URL: url}); !strings.Contains(text, "needs a password") {
		t.Errorf("no password: %s", text)
	}
	c := connect(t, cluster.Config{URL: url, Password: "a-pass-word-1", Role: "run"})
	if e := c.Engine(); e.Mode != "sentinel" {
		t.Errorf("%+v", e)
	}
	c.Join("account")
	eventually(t, "it is a member", func() bool { return roles(t, c, "account") == "run" })

	eventually(t, "the replica is known and linked", func() bool {
		client := dial(t, sentinel.address())
		text, _ := client.Do(t.Context(), client.B().Arbitrary("SENTINEL", "CKQUORUM", "main").Build()).ToString()
		replicas, _ := client.Do(t.Context(), client.B().Arbitrary("SENTINEL", "REPLICAS", "main").Build()).ToArray()
		return strings.HasPrefix(text, "OK") && len(replicas) == 1 && strings.Contains(doAs(t, second, "a-pass-word-1", "INFO", "replication"), "master_link_status:up")
	})
	first.stop()
	eventually(t, "the replica takes over, and it is a member there", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all, err := c.Status(ctx)
		return err == nil && len(all.Accounts) == 1 && len(all.Accounts[0].Members) == 1 &&
			strings.Contains(doAs(t, second, "a-pass-word-1", "INFO", "replication"), "role:master")
	})
}

// TestABatchOutlivesAFailover has the server hang, so that questions to it are open when the sentinels name another.
func TestABatchOutlivesAFailover(t *testing.T) {
	first := newServer(t, "--enable-debug-command", "yes")
	second := newServer(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", first.port))
	sentinel := newServer(t, "--sentinel", fmt.Sprintf("sentinel monitor main 127.0.0.1 %d 1\nsentinel down-after-milliseconds main 500\n"+
		"sentinel failover-timeout main 2000", first.port))
	eventually(t, "the replica is known and linked", func() bool {
		client := dial(t, sentinel.address())
		replicas, _ := client.Do(t.Context(), client.B().Arbitrary("SENTINEL", "REPLICAS", "main").Build()).ToArray()
		return len(replicas) == 1 && strings.Contains(second.do("INFO", "replication"), "master_link_status:up")
	})
	url := sentinel.url() + "?master_set=main"
	k := collect(t, connect(t, cluster.Config{URL: url}), cluster.JobConfig{Name: t.Name()})
	var workers []*cluster.Worker
	for range 5 {
		w := work(t, connect(t, cluster.Config{URL: url}), t.Name())
		workers = append(workers, w)
		echo(t, w, 2)
	}
	add(t, k, 1)
	outcomes(t, k, 1)
	hung := dial(t, first.address())
	go hung.Do(t.Context(), hung.B().Arbitrary("DEBUG", "SLEEP", "8").Build())
	eventually(t, "the replica takes over", func() bool { // and ends the connections that it had
		o := rueidis.ClientOption{InitAddress: []string{second.address()}, DisableCache: true, ForceSingleClient: true}
		client, err := rueidis.NewClient(o)
		if err != nil {
			return false
		}
		defer client.Close()
		text, _ := client.Do(t.Context(), client.B().Info().Section("replication").Build()).ToString()
		return strings.Contains(text, "role:master")
	})
	for n := range int64(20) { // what is asked meanwhile is asked again of the other
		add(t, k, n+2)
	}
	got := 0
	for _, err := range k.Results(patient(t)) {
		if err != nil {
			t.Fatalf("after %d outcomes: %v", got, err)
		}
		if got++; got == 20 {
			break
		}
	}
	for _, w := range workers {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a worker has ended: %v", err)
		}
		cancel()
	}
}

func TestSentinelsHaveAPasswordOfTheirOwn(t *testing.T) {
	server := newServer(t, "--requirepass", "a-pass-word-1")
	conf := fmt.Sprintf("sentinel monitor main 127.0.0.1 %d 1\nsentinel auth-pass main a-pass-word-1\nrequirepass another-pass-1", server.port)
	url := newServer(t, "--sentinel", conf).url() + "?master_set=main"
	text, hint, _ := refused(t, cluster.Config{URL: url, Password: "a-pass-word-1"})
	if !strings.Contains(text, "needs a password") || !strings.Contains(hint, cluster.SentinelPasswordVariable) {
		t.Errorf("%s (hint: %s)", text, hint)
	}
	connect(t, cluster.Config{URL: url, Password: "a-pass-word-1", SentinelPassword: "another-pass-1"})
}

func TestAClusterIsFoundByAnyNode(t *testing.T) {
	var nodes []*realServer
	for range 3 {
		nodes = append(nodes, newServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	if text, _, _ := refused(t, cluster.Config{URL: nodes[0].url()}); !strings.Contains(text, "the Redis cluster is down") {
		t.Errorf("without slots: %s", text)
	}
	for i, n := range nodes {
		from, to := i*16384/3, (i+1)*16384/3-1
		n.do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to))
		n.do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i > 0 {
			n.do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(nodes[0].port))
		}
	}
	eventually(t, "the cluster is whole", func() bool {
		for _, n := range nodes {
			if info := n.do("CLUSTER", "INFO"); !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return false
			}
		}
		return true
	})
	c := connect(t, cluster.Config{URL: nodes[1].url() + "?addr=" + nodes[2].address(), Role: "run"})
	d := connect(t, cluster.Config{URL: nodes[0].url(), Role: "serve"})
	if e := d.Engine(); e.Mode != "cluster" {
		t.Errorf("%+v", e)
	}
	if text, _, _ := refused(t, cluster.Config{URL: nodes[0].url() + "/1"}); !strings.Contains(text, "only database 0") {
		t.Errorf("another database: %s", text)
	}
	for i := range 20 { // they lie on all nodes
		c.Join(fmt.Sprint("account ", i))
	}
	d.Join("account 7")
	eventually(t, "all accounts are seen from any node", func() bool {
		all, err := d.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		members := 0
		for _, a := range all.Accounts {
			members += len(a.Members)
		}
		return len(all.Accounts) == 20 && members == 21 && all.Engine.Mode == "cluster"
	})
	replica := newServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
	replica.do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(nodes[0].port))
	master := nodes[0].do("CLUSTER", "MYID")
	eventually(t, "the new node knows the first", func() bool { return strings.Contains(replica.do("CLUSTER", "NODES"), master) })
	replica.do("CLUSTER", "REPLICATE", master)
	eventually(t, "the cluster offers its replica", func() bool { return offers(t, nodes[0], replica.port) && offers(t, nodes[1], replica.port) })
	connect(t, cluster.Config{URL: replica.url()})
	replica.stop()
	connect(t, cluster.Config{URL: nodes[1].url()}) // a cluster can do without
	if all, err := c.Status(t.Context()); err != nil || len(all.Accounts) != 20 {
		t.Errorf("without a replica: %d accounts, %v", len(all.Accounts), err)
	}
	nodes[2].do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if text, _, _ := refused(t, cluster.Config{URL: nodes[0].url()}); !strings.Contains(text, "allkeys-lru") {
		t.Errorf("one node forgets: %s", text)
	}
}

// offers reports whether a node lists the one at a port among those that have slots.
func offers(t *testing.T, n *realServer, port int) bool {
	t.Helper()
	client := dial(t, n.address())
	ranges, err := client.Do(t.Context(), client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		t.Fatal(err)
	}
	for _, slots := range ranges {
		parts, _ := slots.ToArray() // from, to, and the nodes
		for _, part := range parts[min(2, len(parts)):] {
			node, _ := part.ToArray()
			if at, _ := node[1].AsInt64(); int(at) == port {
				return true
			}
		}
	}
	return false
}

// doAs runs a command on a server that needs a password.
func doAs(t *testing.T, s *realServer, password string, words ...string) string {
	t.Helper()
	client := dialAs(t, s.address(), password)
	text, err := client.Do(t.Context(), client.B().Arbitrary(words...).Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
