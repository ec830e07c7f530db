// Resolve prints the docker-compose.yml of a folder as JSON, as docker compose understands it: it is docker compose's
// own library that checks it against the specification, fills variables in, and leaves out services of other profiles.
//
//	resolve FOLDER [PROFILE ...]
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func resolve(folder string, profiles []string) ([]byte, error) {
	options, err := cli.NewProjectOptions(
		nil,
		cli.WithWorkingDirectory(folder),
		cli.WithOsEnv,
		cli.WithEnvFiles(),
		cli.WithDotEnv,
		cli.WithDefaultConfigPath,
		cli.WithDefaultProfiles(profiles...),
	)
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, err
	}
	return project.MarshalJSON()
}

func main() {
	resolved, err := resolve(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(resolved))
}
