"""Serves the digits, or what an encode run left: python serve.py run=DIR"""

from coin.cli.serve import main

if __name__ == "__main__":
    main()
