"""Codes the experts of an experiment: python encode.py experiment=digits code=coin"""

from coin.cli.encode import main

if __name__ == "__main__":
    main()
