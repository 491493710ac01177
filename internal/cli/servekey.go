package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

// keysFlag names the file of the gateway's keys.
type keysFlag struct{ path string }

const keysUsage = "file of the tenants and the hashes of their keys (absent: one in the state directory)"

func (f *keysFlag) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.path, "keys", "", keysUsage)
}

// file is where the keys are; "" where there is no state directory, and none is named.
func (f *keysFlag) file() gateway.KeyFile {
	if f.path != "" {
		return gateway.KeyFile(f.path)
	}
	dir := stateDir(provider.Provider{})
	if dir == "" {
		return ""
	}
	return gateway.KeyFile(filepath.Join(dir, "serve-keys.json"))
}

func (f *keysFlag) known() (gateway.KeyFile, error) {
	file := f.file()
	if file == "" {
		return "", usageError(errors.New("there is no state directory to keep keys in"), "name a file: --keys FILE")
	}
	return file, nil
}

// complete are the tenants that may be named as an argument.
func (f *keysFlag) complete(args []string) (names []string) {
	if len(args) > 0 || f.file() == "" {
		return nil
	}
	all, err := f.file().Tenants()
	if err != nil {
		return nil
	}
	for _, t := range all {
		names = append(names, t.Name)
	}
	return names
}

// newServeKey returns the commands that make and end the keys of a gateway's clients.
func newServeKey(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make, list and revoke the keys by which clients call the gateway",
		Long: `Make, list and revoke the keys by which clients call the gateway.

As long as there is no key, everybody on this host may call, and nobody else. From the first key on, every call needs one: clients
send it where they sent the provider's. A gateway at work sees a change at its next call.

Of what is contended, tenants of one priority get shares by their weights. Within a tenant, its sessions take turns: those that a
request names by x-sluice-session, or by the headers that coding agents send. A tenant's weight holds over all its sessions.`,
		Example: `  sluice serve key add ci --priority low --rpm 60 --budget-day 5
  sluice serve key list
  sluice serve key revoke ci`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newServeKeyAdd(s), newServeKeyList(s), newServeKeyRevoke(s))
	return cmd
}

func newServeKeyAdd(s *streams) *cobra.Command {
	var (
		keys keysFlag
		t    gateway.Tenant
	)
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Make a key for a tenant, and print it this one time",
		Example: `  sluice serve key add alice
  sluice serve key add batch --weight 0.5 --priority low --concurrent 4
  sluice serve key add intern --models 'gpt-4o-mini,claude-3-5-*' --budget-month 20
  ANTHROPIC_API_KEY=$(sluice serve key add agents) ANTHROPIC_BASE_URL=http://127.0.0.1:8787 your-program`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Name = args[0]
			if err := refuseZeros(cmd.Flags()); err != nil {
				return err
			}
			if err := checkModels(t.Models, cmd.Flags().Changed("models")); err != nil {
				return err
			}
			if err := t.Check(); err != nil {
				return usageError(err, "`sluice serve key add --help` says what a tenant may have")
			}
			file, err := keys.known()
			if err != nil {
				return err
			}
			key, err := file.Add(t)
			if err != nil {
				return err
			}
			fmt.Fprintln(s.out, key)
			s.errorf("sluice: that is the key of tenant %s. It is shown this one time; %s holds its hash alone\n", t.Name, file)
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Float64Var(&t.Weight, "weight", 0, "its share of what is contended, relative to other tenants' (absent: 1)")
	fs.StringVar(&t.Priority, "priority", "", "low, normal, high or critical: the higher go first (absent: normal)")
	fs.IntVar(&t.RPM, "rpm", 0, "its requests per minute (absent: as many as there are)")
	fs.IntVar(&t.TPM, "tpm", 0, "its tokens per minute, input and output")
	fs.IntVar(&t.Concurrent, "concurrent", 0, "its calls that are open at once")
	fs.Float64Var(&t.BudgetDay, "budget-day", 0, "what its calls may cost in a day of UTC, in USD")
	fs.Float64Var(&t.BudgetMonth, "budget-month", 0, "what they may cost in a month of UTC, in USD")
	fs.StringSliceVar(&t.Models, "models", nil, "models that it may ask for, with commas between; a * at the end is anything (absent: all)")
	fs.IntVar(&t.MaxQueue, "max-queue", 0, "its calls that may wait (absent: 10000)")
	fs.DurationVar(&t.MaxWait, "max-wait", 0, "how long each may wait for its turn (absent: the gateway's --queue-timeout)")
	keys.register(fs)
	return cmd
}

// refuseZeros refuses a bound of nothing, which would be none.
func refuseZeros(fs *pflag.FlagSet) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		if text := f.Value.String(); (text == "0" || text == "0s") && err == nil {
			err = usageError(fmt.Errorf("--%s %s would let no call through", f.Name, text), "leave it out for no bound of its own; or make no key")
		}
	})
	return err
}

// checkModels refuses models that would let through another set than is meant, and takes the blanks around them away. Of none, as an
// empty variable of a shell makes them, that would be all.
func checkModels(models []string, given bool) error {
	if given && len(models) == 0 {
		return usageError(errors.New("--models names none: without it, all may be asked for"), "name them, with commas between; or leave it out")
	}
	for i, model := range models {
		models[i] = strings.TrimSpace(model)
		if at := strings.IndexByte(models[i], '*'); at >= 0 && at < len(models[i])-1 {
			return usageError(fmt.Errorf("--models %s: a * is anything at the end alone", models[i]), "name the beginning, such as gpt-4o*, or each model by itself")
		}
	}
	return nil
}

func newServeKeyList(s *streams) *cobra.Command {
	var (
		keys   keysFlag
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the tenants that have a key",
		Example: "  sluice serve key list\n  sluice serve key list --json",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			file, err := keys.known()
			if err != nil {
				return err
			}
			all, err := file.Tenants()
			if err != nil {
				return err
			}
			if asJSON {
				return printTenants(s, all)
			}
			return tabulateTenants(s, all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	keys.register(cmd.Flags())
	return cmd
}

// listedTenant is a tenant as --json prints it: without the hash, which is of no use to anybody else.
type listedTenant struct {
	gateway.Tenant
	Created time.Time `json:"created_at"`
}

func printTenants(s *streams, all []gateway.KeyedTenant) error {
	doc := struct {
		Tenants []listedTenant `json:"tenants"`
	}{Tenants: make([]listedTenant, 0, len(all))}
	for _, t := range all {
		doc.Tenants = append(doc.Tenants, listedTenant{t.Tenant, t.Created})
	}
	return s.printJSON(doc)
}

func tabulateTenants(s *streams, all []gateway.KeyedTenant) error {
	if len(all) == 0 {
		s.errorf("sluice: no tenant has a key: whoever is on this host may call a gateway that begins now\n")
		return nil
	}
	number := func(n int) string {
		if n == 0 {
			return "-"
		}
		return strconv.Itoa(n)
	}
	usd := func(sum float64) string {
		if sum == 0 {
			return "-"
		}
		return strconv.FormatFloat(sum, 'f', -1, 64)
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tWEIGHT\tPRIORITY\tRPM\tTPM\tCONCURRENT\tUSD/DAY\tUSD/MONTH\tMODELS\tSINCE")
	for _, t := range all {
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, cmp.Or(t.Weight, 1), cmp.Or(t.Priority, "normal"),
			number(t.RPM), number(t.TPM), number(t.Concurrent), usd(t.BudgetDay), usd(t.BudgetMonth),
			cmp.Or(strings.Join(t.Models, ","), "all"), t.Created.Format(time.DateOnly))
	}
	return w.Flush()
}

func newServeKeyRevoke(s *streams) *cobra.Command {
	var keys keysFlag
	cmd := &cobra.Command{
		Use:     "revoke NAME",
		Short:   "End the key of a tenant: its next call is refused",
		Example: "  sluice serve key revoke alice",
		Args:    oneName,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return keys.complete(args), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := keys.known()
			if err != nil {
				return err
			}
			err = file.Revoke(args[0])
			if errors.Is(err, gateway.ErrNoTenant) {
				return usageError(err, "`sluice serve key list` says which there are in %s", file)
			}
			if err == nil {
				s.errorf("sluice: the key of tenant %s has ended\n", args[0])
			}
			return err
		},
	}
	keys.register(cmd.Flags())
	return cmd
}

// oneName refuses anything but the name of one tenant.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError(fmt.Errorf("%d names of tenants: want one", len(args)), "name it, as in `%s alice`", cmd.CommandPath())
	}
	return nil
}
