package vm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newScreenshot(flags *target.Flags) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "screenshot NAME",
		Short: "Save what the display of a machine shows",
		Long: `Save what the display of a machine shows, as a PNG file, by default NAME.png. The machine must have a display
(spec.display.type: VGA).`,
		Example: "  keelson vm screenshot web\n  keelson vm screenshot web -o - | display",
		Args:    oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file, isFile := cmd.OutOrStdout().(*os.File); output == "-" && isFile && term.IsTerminal(int(file.Fd())) {
				return usage.Errorf("a PNG file is not written to a terminal: use --output with a file")
			}
			m, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			image, err := client.ReadScreenshot(cmd.Context(), m.API.Config, m.API.Namespace, args[0])
			if err != nil {
				return err
			}
			defer image.Close() //nolint:errcheck // it was only read
			if output == "-" {
				_, err = io.Copy(cmd.OutOrStdout(), image)
				return err
			}
			path := cmp.Or(output, args[0]+".png")
			if err := save(path, image); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), "Saved", path)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "`file` to write; -: standard output (default NAME.png)")
	return cmd
}

// save writes a file. Nobody else may read it, because a screen may show secrets.
func save(path string, from io.Reader) error {
	content, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("receive the screenshot: %w", err)
	}
	if len(content) == 0 {
		return errors.New("the screenshot is empty")
	}
	return os.WriteFile(path, content, 0o600)
}
