from disk.cli import main

raise SystemExit(main())
