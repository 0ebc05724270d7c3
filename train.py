"""Fine-tunes one expert: python train.py data=cifar10 data.labels=[0,1,2,3,4] model=resnet50"""

from coin.cli.train import main

if __name__ == "__main__":
    main()
